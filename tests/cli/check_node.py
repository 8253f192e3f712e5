"""A node in order, for tests of gpu-leasectl check to spoil."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _gpulease import lib

from leased import __version__
from leased.base.errors import NoAnswer
from leased.cli import check
from leased.cli.checks import daemon, driver, libraries
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding
from leased.gpus.nvml import Silent
from leased.slurm import node_gres, slurmconf
from leased.slurm.node_gres import NodeGres
from tests.slurm.leased import PRELOAD

HOST = socket.gethostname().partition(".")[0]
VERSION = (22, 5, 8)


def status() -> dict[str, Any]:
    return {
        "version": __version__,
        "wire_version": lib.GL_VERSION,
        "store_fault": None,
        "strays": {},
        "cluster": {"name": "alpha", "refused": {}},
        "devices": [{"index": 0, "drain": None}],
    }


@dataclass
class Node:
    """A node in order, whose parts a test spoils before it looks."""

    root: Path
    answer: dict[str, Any] | Exception = field(default_factory=status)
    gpus: list[Any] = field(default_factory=list)
    nvml: Silent | None = None
    asked: dict[str, str] = field(default_factory=dict)  # what slurmctld says
    asked_nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    slurmd: NodeGres | None = None  # what it makes of its files; None: it is not there yet
    version: tuple[int, int, int] | None = VERSION
    found: dict[str, Finding] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("etc", "run", "lib"):
            (self.root / name).mkdir()
        self.config = self.root / "etc" / "gpu-leased.toml"
        self.files = [self.root / "dev0", self.root / "dev1"]
        for file in self.files:
            file.touch()
        self.gpus = [
            {"uuid": f"GPU-{n:08x}-0000-0000-0000-000000000000", "minor": n}
            | {"name": "H200", "memory": 1 << 30}
            for n in range(2)
        ]
        self.preload = self.root / "lib" / "libgpulease.so"
        shutil.copy(PRELOAD, self.preload)
        self.plugin = self.root / "lib" / "gpu_share.so"
        make_library(self.plugin, plugin(VERSION), f"gpu-lease plugin {__version__}")
        self.write("gpu-leased.toml", self.toml())
        self.write("slurm.conf", self.slurm_conf())
        self.write(
            "gres.conf",
            f"AutoDetect=off\nNodeName={HOST} Name=gpu Cores=0-3 File={self.root}/dev[0-1]\n"
            f"NodeName=other[1-3] Name=gpu Cores=0-3 File={self.root}/dev[0-1]\n"
            f"NodeName={HOST},other[1-3] Name=shard Count=8\n",
        )
        self.write("cgroup.conf", "ConstrainDevices=yes\n")
        self.write("plugstack.conf", f"optional {self.plugin} {self.arguments()}\n")
        self.tenant = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.tenant.bind(str(self.root / "run" / "tenant.sock"))
        (self.root / "run" / "tenant.sock").chmod(0o666)
        self.tenant.listen()

    def arguments(self) -> str:
        return f"admin_socket={self.root}/run/admin.sock tq_min=30ms tq_max=10m lock_off=yes"

    def toml(self) -> str:
        return (
            f'[daemon]\nruntime_dir = "{self.root}/run"\npreload = "{self.preload}"\n'
            f'slurm_conf = "{self.root}/etc/slurm.conf"\n'
        )

    def slurm_conf(self) -> str:
        return (
            f"GresTypes=gpu,shard\nTaskPlugin=task/cgroup\nPlugStackConfig={self.root}/etc/plugstack.conf\n"
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            "AccountingStorageTRES=gres/gpu,gres/shard\n"
            "NodeName=DEFAULT CPUs=4 Gres=gpu:2,shard:8\n"
            f"NodeName={HOST},other[1-3]\n"
        )

    def write(self, name: str, text: str) -> None:
        (self.root / "etc" / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / "etc" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def look(self, name: str | None = None, *, controller: bool = False) -> list[Finding]:
        self.findings = findings = check.run(self.config, None, name, controller)
        self.found = {finding.id: finding for finding in findings}
        return findings

    def faults(self, name: str | None = None) -> list[Finding]:
        """What is found that is not in order."""
        return [finding for finding in self.look(name) if finding.level != OK]


def make_library(path: Path, text: str, mark: str = "", *arguments: str) -> None:
    """Write a shared library of this C source, with a text that stands in it."""
    path.write_bytes(
        compiled(f'{text}\n__attribute__((used)) static const char mark[] = "{mark}";\n', arguments)
    )


@functools.cache
def compiled(text: str, arguments: tuple[str, ...]) -> bytes:
    with tempfile.NamedTemporaryFile(prefix="gpul-", suffix=".so") as out:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-xc", "-", "-o", out.name, *arguments],
            check=True,
            input=text,
            text=True,
        )
        return Path(out.name).read_bytes()


def plugin(version: tuple[int, int, int]) -> str:
    return f"const unsigned plugin_version = {version[0] << 16 | version[1] << 8 | version[2]};"


@pytest.fixture
def node(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(short_dir)

    def ask_status(path: Path) -> dict[str, Any]:
        if path != made.root / "run" / "admin.sock":
            raise NoAnswer(f"nobody at {path}", "look elsewhere")
        if isinstance(made.answer, Exception):
            raise made.answer
        return made.answer

    def describe() -> dict[str, Any]:
        if made.nvml:
            raise made.nvml
        return {"driver": "580.1", "devices": made.gpus}

    monkeypatch.setattr(driver, "describe", describe)
    monkeypatch.setattr(daemon, "ask_status", ask_status)
    monkeypatch.setattr(slurmconf, "ask_config", lambda env: made.asked)  # noqa: ARG005
    monkeypatch.setattr(slurmconf, "ask_nodes", lambda *_: made.asked_nodes)
    monkeypatch.setattr(node_gres, "ask", lambda *_: made.slurmd)
    monkeypatch.setattr(slurmconf, "version", lambda env: made.version)  # noqa: ARG005
    monkeypatch.setattr(libraries, "IMPORT", "pass")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    yield made
    made.tenant.close()


Spoil = Callable[[Node], object]


def several(*steps: Spoil) -> Spoil:
    """One change after the other."""

    def run(node: Node) -> None:
        for step in steps:
            step(node)

    return run


def edit(name: str, old: str, new: str) -> Spoil:
    return lambda node: node.edit(name, old, new)


def write(name: str, text: str) -> Spoil:
    return lambda node: node.write(name, text)


def remove(name: str) -> Spoil:
    return lambda node: (node.root / "etc" / name).unlink()


def toml(tables: str) -> Spoil:
    """The daemon's configuration has these tables besides."""
    return lambda node: node.write("gpu-leased.toml", node.toml() + tables)


def says(**fields: Any) -> Spoil:
    """The daemon says this, and the rest of a daemon in order."""
    return lambda node: setattr(node, "answer", status() | fields)


def sets(**fields: Any) -> Spoil:
    return lambda node: vars(node).update(fields)


def set_memory_limit(node: Node) -> None:
    node.edit("slurm.conf", "CPUs=4", "CPUs=4 RealMemory=4000 MemSpecLimit=1000")


def put_plugins_of_slurm(node: Node, version: tuple[int, int, int]) -> None:
    make_library(node.root / "lib" / "select_cons_tres.so", plugin(version))
    node.edit("slurm.conf", "GresTypes", f"PluginDir={node.root}/lib\nGresTypes")


class Case(NamedTuple):
    """What is found where this is spoilt. words: a part of the finding's text."""

    level: str
    id: str
    words: str
    spoil: Spoil = several()

    def after(self, *spoil: Spoil) -> Case:
        return self._replace(spoil=several(*spoil))

    def found(self, findings: list[Finding]) -> Finding:
        """The only finding of that id and level, which says that and has a remedy."""
        (found,) = [f for f in findings if (f.id, f.level) == (self.id, self.level)]
        assert self.words in found.text
        assert found.remedy
        return found


fault, warning = partial(Case, FAULT), partial(Case, WARNING)


def named(case: Case) -> str:
    """For the names of tests."""
    return f"{case.id}: {case.words}"

"""gpu-leasectl check: what keeps this node from sharing its GPUs, found one by one.

Every finding has an id that stays the same from release to release, so that a
site's monitoring can name it. ok: it was looked at and is in order. warning:
sharing works, or it could not be looked at. fault: jobs fail, or are not
protected. Runs with and without the daemon, and changes nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from leased.admin.user_limits import UserLimits
from leased.api.answers import Status
from leased.base.errors import Refused
from leased.config import config
from leased.gpus.nvml_answers import Described
from leased.slurm import slurmconf
from leased.slurm.slurmconf import SlurmConf

OK, WARNING, FAULT = "ok", "warning", "fault"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. level: ok, warning or fault."""

    id: str
    level: str
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass
class Site:
    """What there is to look at. status: the daemon's, None while it does not answer."""

    config: config.Config
    path: Path  # of gpu-leased.toml
    admin_socket: Path
    slurm: SlurmConf
    env: Mapping[str, str]
    version: tuple[int, int] | None = None
    node: str | None = None
    status: Status | None = None
    gpus: list[Described] = field(default_factory=list)  # that NVML shows; [] unknown


def check_config(path: Path) -> tuple[config.Config, list[Finding]]:
    """The configuration, or that of no file where it is at fault."""
    try:
        read = config.load(path)
    except Refused as fault:
        remedy = fault.hint or "correct it; gpu-leased does not start with it"
        return config.Config(), [Finding("config", FAULT, str(fault), remedy)]
    found = [Finding("config", OK, f"{path} is understood" if path.exists() else "all defaults")]
    try:
        UserLimits.of(read).check_defaults(read.defaults)
    except Refused as fault:
        found.append(Finding("defaults", FAULT, str(fault), "make defaults.options fit [limits]"))
    else:
        found.append(Finding("defaults", OK, "jobs that ask for nothing are within the limits"))
    return read, found


def look_for_slurm(given: str, node: str | None) -> Site:
    """Slurm's configuration: of its files, and of slurmctld where that answers."""
    path = slurmconf.find(os.environ, given)
    env = {"SLURM_CONF": str(path)} if path else {}
    found = SlurmConf(path)
    if path is not None:
        try:
            found.read(path)
        except OSError as fault:
            found.path = None
            found.faults.append(f"{fault.filename}: {fault.strerror}")
    asked = slurmconf.ask_config(env)
    found.values |= asked
    if found.path is None and Path(asked.get("slurm_conf", "/nonexistent")).is_file():
        found.path = Path(asked["slurm_conf"])
        found.read(found.path)
    name = node or os.environ.get("SLURMD_NODENAME") or found.node_of(socket.gethostname())
    unknown = Path("/nonexistent")
    return Site(config.Config(), unknown, unknown, found, env, slurmconf.version(env), name)


def run(path: Path, socket_path: Path | None, node: str | None = None) -> list[Finding]:
    """Look at everything. path: gpu-leased.toml; node: this one's name in slurm.conf."""
    from leased.cli import check_node, check_slurm

    read, found = check_config(path)
    site = look_for_slurm(read.slurm_conf, node)
    site.config, site.path = read, path
    site.admin_socket = socket_path or read.admin_socket
    found += check_node.findings(site)
    found += check_slurm.findings(site)
    return found


def table(findings: list[Finding]) -> Any:
    """For people: a line each, the remedy below."""
    from rich.table import Table
    from rich.text import Text

    styles = {OK: "green", WARNING: "yellow", FAULT: "bold red"}
    made = Table(show_header=False, box=None, pad_edge=False)
    for finding in findings:
        remedy = f"\n-> {finding.remedy}" if finding.remedy else ""
        made.add_row(
            Text(finding.level, styles[finding.level]), finding.id, Text(finding.text + remedy)
        )
    faults = sum(f.level == FAULT for f in findings)
    warnings = sum(f.level == WARNING for f in findings)
    made.add_row("", "", Text(f"{len(findings)} looked at: {faults} faults, {warnings} warnings"))
    return made


def as_list(found: Iterator[Finding]) -> list[Finding]:
    """All findings of a check; what it could not read is a finding too."""
    made: list[Finding] = []
    try:
        made.extend(found)
    except OSError as fault:
        remedy = "run it as root" if isinstance(fault, PermissionError) else "correct the file"
        made.append(Finding("files", WARNING, f"{fault.filename}: {fault.strerror}", remedy))
    except Exception as fault:  # of ours: it must not hide what the others find
        words = f"a part of this check failed: {type(fault).__name__}: {fault}"
        made.append(Finding("check", WARNING, words, "report it"))
    return made

"""Slurm's configuration files as far as sharing needs them, read without Slurm's help.

slurm.conf and gres.conf are lines of KEY=VALUE; plugstack.conf has lines of its
own. What an answering slurmctld says goes before the files (configless nodes).
"""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leased.base import children
from leased.base.requests import shown
from leased.slurm.conf_lines import Faults, Fields, Reader, fields
from leased.slurm.hostlists import expand

# The last: where slurmd puts what it fetched on a configless node.
PLACES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
PLUGIN_DIRS = (
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
)
ASK_S = 10


def beside(folder: Path, word: str) -> list[Path]:
    """The file of slurm.conf's or gres.conf's Include."""
    return [folder / word.strip()]


def matching(folder: Path, word: str) -> list[Path]:
    """The files of plugstack.conf's include: a relative pattern is one beside the file."""
    return [Path(name) for name in sorted(glob.glob(str(folder / word.strip())))]  # noqa: PTH207


@dataclass
class SlurmConf:
    """slurm.conf. path: None where only slurmctld was asked. nodes: fields by node name.

    faults: sentences about lines that are odd, which were left out.
    """

    path: Path | None
    values: Fields = field(default_factory=dict)
    nodes: dict[str, Fields] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path | None:
        """Where the other files are."""
        return self.path.parent if self.path else None

    def read(self, path: Path) -> None:
        """Add what the file says. OSError: it cannot be read."""
        defaults: Fields = {}
        faults = Faults()
        for line in Reader(beside, faults).read(path):
            found = fields(line, faults)
            if "nodename" not in found:
                self.values |= found
            elif found["nodename"].upper() == "DEFAULT":
                defaults = found
            else:
                try:
                    self._add_nodes(defaults | found)
                except ValueError as fault:
                    faults.line(line, str(fault))
        self.faults += faults.listed()

    def _add_nodes(self, found: Fields) -> None:
        names = expand(found["nodename"])
        hosts = expand(found.get("nodehostname", "")) or names
        for n, name in enumerate(names):
            self.nodes[name] = found | {"nodehostname": hosts[n % len(hosts)]}

    def node_of(self, host: str) -> str | None:
        """The name of the node that this host is; of several the first."""
        short = host.partition(".")[0]
        for name, found in self.nodes.items():
            if {name, found["nodehostname"]} & {host, short}:
                return name
        return None


def find(env: Mapping[str, str], given: str = "") -> Path | None:
    """slurm.conf: where SLURM_CONF or our configuration says, else at a usual place."""
    named = given or env.get("SLURM_CONF", "")
    if named:
        return Path(named)
    return next((Path(place) for place in PLACES if Path(place).is_file()), None)


def ask(*command: str, env: Mapping[str, str]) -> str:
    """What a Slurm command prints; "" when it is not there or does not succeed in time."""
    try:
        done = children.run_and_wait(*command, env=env, patience_s=ASK_S)
    except OSError:
        return ""
    return done.out if done.status == 0 and not done.fault else ""


def ask_config(env: Mapping[str, str]) -> Fields:
    """`scontrol show config`; empty when slurmctld does not answer."""
    found = {}
    for line in ask("scontrol", "show", "config", env=env).splitlines():
        key, equals, value = line.partition("=")
        if equals and value.strip() != "(null)":
            found[key.strip().lower()] = value.strip()
    return found


def version(env: Mapping[str, str]) -> tuple[int, int] | None:
    """(major, minor) of the Slurm that is installed here."""
    # slurmd first: it needs no configuration to say it.
    for command in ("/usr/sbin/slurmd", "slurmd", "scontrol"):
        found = re.search(r"(\d+)\.(\d+)", ask(command, "-V", env=env))
        if found:
            return int(found[1]), int(found[2])
    return None


# -- GRES ----------------------------------------------------------------------


def gres_counts(text: str) -> dict[str, int]:
    """gpu:a100:4,shard:32 -> {"gpu": 4, "shard": 32}."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = part.strip().split(":")
        if name:
            last = rest[-1] if rest and rest[-1][:1].isdigit() else "1"
            found[name] = found.get(name, 0) + count(last)
    return found


def count(text: str) -> int:
    """A count as Slurm writes it: 32, 4K. 0: none."""
    found = re.fullmatch(r"([0-9]{1,9})([KkMm]?)", text)
    return int(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()] if found else 0


@dataclass
class Gres:
    """What gres.conf says of one node. autodetect: its value, "" or off: none.

    faults: sentences about lines that are odd, which were left out.
    """

    files: list[str] = field(default_factory=list)
    gpus: list[tuple[str, list[str]]] = field(default_factory=list)  # a line's type and files
    shards: int = 0
    gpu_lines: int = 0
    shard_lines: int = 0
    autodetect: str = ""
    faults: list[str] = field(default_factory=list)

    def add(self, said: Fields, node: str | None) -> None:
        """What a line says, if it is of this node. ValueError: it names nothing that can be."""
        if "nodename" in said and node not in expand(said["nodename"]):
            return
        files = expand(said.get("file", ""))
        self.autodetect = said.get("autodetect", self.autodetect).lower()
        name = said.get("name", "").lower()
        if name == "gpu":
            self.gpu_lines += 1
            self.files += files
            self.gpus.append((said.get("type", "").lower(), files))
        elif name == "shard":
            self.shard_lines += 1
            self.shards += count(said.get("count", "1")) * max(1, len(files))


def gres_of(path: Path, node: str | None) -> Gres:
    """gres.conf for one node (None: only lines of all nodes). OSError: unreadable."""
    found = Gres()
    faults = Faults()
    for line in Reader(beside, faults).read(path):
        try:
            found.add(fields(line, faults), node)
        except ValueError as fault:
            faults.line(line, str(fault))
    found.faults = faults.listed()
    if found.autodetect == "off":
        found.autodetect = ""
    return found


def cgroup_conf(folder: Path) -> tuple[Fields, list[str]]:
    """cgroup.conf, and what is odd in it; a missing one says nothing. OSError: unreadable."""
    faults = Faults()
    found: Fields = {}
    with contextlib.suppress(FileNotFoundError):
        for line in Reader(beside, faults).read(folder / "cgroup.conf"):
            found |= fields(line, faults)
    return found, faults.listed()


def constrains_devices(conf: SlurmConf) -> bool:
    """Whether a job can open only the devices that Slurm gave it. OSError: unreadable."""
    if "task/cgroup" not in conf.values.get("taskplugin", "") or conf.folder is None:
        return False
    said = cgroup_conf(conf.folder)[0].get("constraindevices", "")
    return said.lower() in ("yes", "true", "up", "1", "y")


# -- plugstack.conf ------------------------------------------------------------


@dataclass(frozen=True)
class PluginLine:
    """A line of plugstack.conf."""

    file: Path
    required: bool
    path: str
    arguments: tuple[str, ...]


def plugin_lines(path: Path) -> tuple[list[PluginLine], list[str]]:
    """The plugins, with those of included files; and what is odd. OSError: unreadable."""
    found: list[PluginLine] = []
    faults = Faults()
    for line in Reader(matching, faults).read(path):
        kind, *rest = line.text.split()
        if kind.lower() in ("required", "optional") and rest:
            plugin = PluginLine(line.file, kind.lower() == "required", rest[0], tuple(rest[1:]))
            found.append(plugin)
        else:
            faults.line(line, f"{shown(line.text)} is no line of a plugin")
    return found, faults.listed()


def plugin_file(path: str, plugin_dirs: str) -> Path | None:
    """The plugin's file as Slurm finds it: an absolute path, or a name in PluginDir."""
    if path.startswith("/"):
        return Path(path) if Path(path).is_file() else None
    folders = plugin_dirs.split(":") if plugin_dirs else PLUGIN_DIRS
    found = (Path(folder) / path for folder in folders)
    return next((file for file in found if file.is_file()), None)

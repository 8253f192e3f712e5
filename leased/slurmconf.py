"""Slurm's configuration files as far as sharing needs them, read without Slurm's help.

slurm.conf and gres.conf are lines of KEY=VALUE; plugstack.conf has lines of its
own. What an answering slurmctld says goes before the files (configless nodes).
"""

from __future__ import annotations

import glob
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leased import children

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
DEEPEST = 16  # files that include each other

Fields = dict[str, str]


def expand(names: str) -> list[str]:
    """The names of a hostlist: gpu[1-3,7]-ib,login -> gpu1-ib, gpu2-ib, ... ValueError: none."""
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        pieces = re.split(r"\[([^\]]*)\]", part)  # text, inside of brackets, text, ...
        choices = [_numbers(piece) if n % 2 else [piece] for n, piece in enumerate(pieces)]
        found += ["".join(chosen) for chosen in itertools.product(*choices)]
    return found


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            found.append(low)
            continue
        found += [f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1)]
    return found


def lines(path: Path, depth: int = 0) -> Iterator[str]:
    """A file's lines without comments, with continued and included ones. OSError: unreadable."""
    text = path.read_text(errors="replace").replace("\\\n", "")
    for raw in text.splitlines():
        line = re.sub(r"(?<!\\)#.*", "", raw).strip()
        word, _, rest = line.partition(" ")
        if word.lower() == "include" and depth < DEEPEST:
            yield from lines(path.parent / rest.strip(), depth + 1)
        elif line:
            yield line


def fields(line: str) -> Fields:
    """KEY=VALUE of a line, keys in lower case."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    pairs = [word.partition("=") for word in words]
    return {key.lower(): value for key, equals, value in pairs if equals}


@dataclass
class SlurmConf:
    """slurm.conf. path: None where only slurmctld was asked. nodes: fields by node name."""

    path: Path | None
    values: Fields = field(default_factory=dict)
    nodes: dict[str, Fields] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        """Where the other files are."""
        return self.path.parent if self.path else None

    def read(self, path: Path) -> None:
        """Add what the file says."""
        defaults: Fields = {}
        for line in lines(path):
            found = fields(line)
            if "nodename" not in found:
                self.values |= found
            elif found["nodename"].upper() == "DEFAULT":
                defaults = found
            else:
                self._add_nodes(defaults | found)

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
    found = re.fullmatch(r"(\d+)([KkMm]?)", text)
    return int(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()] if found else 0


@dataclass
class Gres:
    """What gres.conf says of one node. autodetect: its value, "" or off: none."""

    files: list[str] = field(default_factory=list)
    shards: int = 0
    gpu_lines: int = 0
    shard_lines: int = 0
    autodetect: str = ""


def gres_of(path: Path, node: str | None) -> Gres:
    """gres.conf for one node (None: only lines of all nodes). OSError: unreadable."""
    found = Gres()
    for line in lines(path):
        said = fields(line)
        if "nodename" in said and node not in expand(said["nodename"]):
            continue
        found.autodetect = said.get("autodetect", found.autodetect).lower()
        name = said.get("name", "").lower()
        files = expand(said.get("file", ""))
        if name == "gpu":
            found.gpu_lines += 1
            found.files += files
        elif name == "shard":
            found.shard_lines += 1
            found.shards += count(said.get("count", "1")) * max(1, len(files))
    if found.autodetect == "off":
        found.autodetect = ""
    return found


# -- plugstack.conf ------------------------------------------------------------


@dataclass(frozen=True)
class PluginLine:
    """A line of plugstack.conf."""

    file: Path
    required: bool
    path: str
    arguments: tuple[str, ...]


def plugin_lines(path: Path, depth: int = 0) -> Iterator[PluginLine]:
    """The plugins, with those of included files. OSError: unreadable."""
    for raw in path.read_text(errors="replace").splitlines():
        words = re.sub(r"#.*", "", raw).split()
        if len(words) < 2:
            continue
        if words[0] == "include" and depth < DEEPEST:
            # A relative pattern is one beside the file that includes.
            for name in sorted(glob.glob(str(path.parent / words[1]))):  # noqa: PTH207
                yield from plugin_lines(Path(name), depth + 1)
        elif words[0] in ("required", "optional"):
            yield PluginLine(path, words[0] == "required", words[1], tuple(words[2:]))


def plugin_file(path: str, plugin_dirs: str) -> Path | None:
    """The plugin's file as Slurm finds it: an absolute path, or a name in PluginDir."""
    if path.startswith("/"):
        return Path(path) if Path(path).is_file() else None
    folders = plugin_dirs.split(":") if plugin_dirs else PLUGIN_DIRS
    found = (Path(folder) / path for folder in folders)
    return next((file for file in found if file.is_file()), None)

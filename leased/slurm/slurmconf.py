"""slurm.conf and cgroup.conf as far as sharing needs them, and what Slurm itself says of them.

gres_conf.py reads gres.conf, and plugstack.py reads plugstack.conf. Where slurmctld answers, what
it says counts more than the files, since configless nodes have none.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leased.base import children
from leased.slurm import gres_text
from leased.slurm.conf_lines import Faults, Fields, Reader, fields
from leased.slurm.hostlists import expand

# Behind the usual ones: where slurmd and sackd put what they fetched on a configless host.
PLACES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
    "/var/lib/slurm/slurmd/conf-cache/slurm.conf",
)
ASK_S = 10
YES = ("yes", "true", "up", "1", "y")
MOST_SAID = 64 << 20  # bytes; scontrol says some 700 of a node
# Lines with these keys are about something else than the cluster.
OF_PARTS = {"partitionname", "nodeset", "downnodes", "frontendname"}
OF_NODE = re.compile(r"(?:^|\s)(NodeName|Gres|RealMemory|MemSpecLimit)=(\S+)")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NODE_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
ADDRESS_S = 2.0  # to ask for one
GRACE_S = 2  # Slurm's own suspend_grace_time
GRACE = re.compile(r"suspend_grace_time=(\d{1,5})", re.IGNORECASE)


def beside(folder: Path, word: str) -> list[Path]:
    """The file that an Include in slurm.conf or gres.conf names."""
    return [folder / word.strip()]


@dataclass
class SlurmConf:
    """slurm.conf. path: None: slurmctld was asked instead. nodes: fields by the node's name.
    dynamic: names of nodes that slurmctld alone has, which `slurmd -Z` has told it.
    controllers: hosts of slurmctld, without their domains.

    faults: sentences about the lines that could not be understood and were left out.
    """

    path: Path | None
    values: Fields = field(default_factory=dict)
    nodes: dict[str, Fields] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)
    dynamic: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path | None:
        """The directory of Slurm's other files."""
        return self.path.parent if self.path else None

    def value(self, key: str, default: str = "") -> str:
        """What stands behind a key, which is given in lower case."""
        return self.values.get(key, default)

    def listed(self, key: str) -> list[str]:
        """The words behind a key that takes several with commas between them."""
        return self.value(key).replace(" ", "").split(",")

    def plugins(self, key: str, kind: str, default: str = "") -> list[str]:
        """The plugins behind a key, without their kind, which later releases do not ask for."""
        words = self.value(key, default).lower().replace(" ", "").split(",")
        return [word.removeprefix(f"{kind}/") for word in words]

    def node(self, name: str | None) -> Fields:
        """The fields of a node; none if slurm.conf does not have it."""
        return self.nodes.get(name, {}) if name else {}

    def of_nodes(self, key: str) -> dict[str, str]:
        """By node, what stands behind a key of its line."""
        return {name: found.get(key, "") for name, found in self.nodes.items()}

    def read(self, path: Path) -> None:
        """Add what the file says. OSError: it cannot be read."""
        defaults: Fields = {}
        faults = Faults()
        for line in Reader(beside, faults).read(path):
            found = fields(line, faults)
            if OF_PARTS & found.keys():
                continue
            if "nodename" not in found:
                self.values |= found
                self._add_controller(found)
            elif found["nodename"].upper() == "DEFAULT":
                defaults = found
            else:
                try:
                    self._add_nodes(defaults | found)
                except ValueError as fault:
                    faults.line(line, str(fault))
        self.faults += faults.listed()

    def _add_controller(self, found: Fields) -> None:
        """Of a line, or of what slurmctld says: its host, and those that stand in for it."""
        for key, value in found.items():
            if re.fullmatch(r"slurmctldhost(\[\d+\])?|controlmachine", key):
                self.controllers.append(re.split(r"[.(]", value)[0])

    def add_asked(self, asked: Fields) -> None:
        """What slurmctld says goes before the files, but for where its own plugstack.conf is."""
        if self.path is not None:
            asked = {key: value for key, value in asked.items() if key != "plugstackconfig"}
        self.values |= asked
        self._add_controller(asked)

    def add_asked_nodes(self, asked: Mapping[str, Fields]) -> None:
        """The nodes that slurmctld alone has. For others slurm.conf counts: slurmctld adds to
        their GRES what slurmd has told it."""
        for name, found in asked.items():
            if name not in self.nodes:
                self.dynamic.add(name)
                self.nodes[name] = {"nodehostname": name} | found

    def is_controller(self, host: str) -> bool:
        """Whether slurmctld is to run on this host."""
        return host.partition(".")[0] in self.controllers

    def _add_nodes(self, found: Fields) -> None:
        names = expand(found["nodename"])
        hosts = expand(found.get("nodehostname", "")) or names
        addresses = expand(found.get("nodeaddr", "")) or hosts
        for n, name in enumerate(names):
            host, address = hosts[n % len(hosts)], addresses[n % len(addresses)]
            self.nodes[name] = found | {"nodehostname": host, "nodeaddr": address}

    def node_of(self, host: str) -> str | None:
        """The name that slurm.conf has for this host, the first of several; None: it has none."""
        short = host.partition(".")[0]
        for name, found in self.nodes.items():
            if {name, found["nodehostname"]} & {host, short}:
                return name
        return None

    def this_node(self) -> str | None:
        """The name of the node that this host is; None: it has none."""
        return os.environ.get("SLURMD_NODENAME") or self.node_of(socket.gethostname())

    def name_here(self) -> str:
        """The name of the node that this host is, or would be with `slurmd -Z`."""
        return self.this_node() or socket.gethostname()


def find(env: Mapping[str, str], given: str = "") -> Path | None:
    """The path of slurm.conf, by our configuration, SLURM_CONF or its usual places; None: none."""
    named = given or env.get("SLURM_CONF", "")
    if named:
        return Path(named)
    return next((Path(place) for place in PLACES if Path(place).is_file()), None)


def name_of_this_node(given: str = "") -> str:
    """What Slurm calls this node. given: the path of slurm.conf by our configuration. OSError: the
    file cannot be read, or there is none."""
    named = os.environ.get("SLURMD_NODENAME")
    if named:
        return named
    path = find(os.environ, given)
    if path is None:
        raise OSError("there is no slurm.conf; set daemon.slurm_conf")
    conf = SlurmConf(path)
    conf.read(path)
    return conf.name_here()


def ask(*command: str, env: Mapping[str, str]) -> str:
    """What a Slurm command prints; "": it is not installed, or does not succeed in time."""
    try:
        done = children.run_and_wait(*command, env=env, patience_s=ASK_S, most=MOST_SAID)
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


def ask_nodes(env: Mapping[str, str], name: str = "") -> dict[str, Fields]:
    """By node, what slurmctld says of its GRES and its memory; empty when it does not answer, or
    has no node of that name. name: "": of all nodes."""
    found: dict[str, Fields] = {}
    command = ["scontrol", "--all", "--oneliner", "show", "node"]
    for line in ask(*command, *([name] if name else []), env=env).splitlines():
        said: Fields = {}
        for key, value in OF_NODE.findall(line):
            if value != "(null)":
                said.setdefault(key.lower(), value)
        if "nodename" in said:
            said["gres"] = gres_text.as_configured(said.get("gres", ""))
            found[said["nodename"]] = said
    return found


def version(env: Mapping[str, str]) -> tuple[int, int, int] | None:
    """(major, minor, micro) of the Slurm that is installed here."""
    # slurmd first: it needs no configuration to say it.
    for command in ("/usr/sbin/slurmd", "slurmd", "scontrol"):
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", ask(command, "-V", env=env))
        if found:
            return int(found[1]), int(found[2]), int(found[3])
    return None


def cgroup_conf(folder: Path) -> tuple[Fields, list[str]]:
    """cgroup.conf and the faults of its lines; a missing file is empty. OSError: unreadable."""
    faults = Faults()
    found: Fields = {}
    with contextlib.suppress(FileNotFoundError):
        for line in Reader(beside, faults).read(folder / "cgroup.conf"):
            found |= fields(line, faults)
    return found, faults.listed()


def constrains_devices(conf: SlurmConf) -> bool:
    """A job can open only the devices that Slurm gave it. OSError: a file cannot be read."""
    if "cgroup" not in conf.plugins("taskplugin", "task") or conf.folder is None:
        return False
    said = cgroup_conf(conf.folder)[0].get("constraindevices", "")
    return said.lower() in YES


def _readable(path: Path | None) -> SlurmConf:
    """slurm.conf; nothing of it where it cannot be read."""
    conf = SlurmConf(path)
    if path is not None:
        with contextlib.suppress(OSError):
            conf.read(path)
    return conf


def suspend_grace_ns(env: Mapping[str, str]) -> int:
    """How long Slurm waits between the announcement of a suspension and the stop of the processes:
    suspend_grace_time of PreemptParameters in this node's slurm.conf, or Slurm's default."""
    found = GRACE.search(_readable(find(env)).value("preemptparameters"))
    return (int(found[1]) if found else GRACE_S) * 1_000_000_000


async def address_of(name: str, env: Mapping[str, str], conf: Path | None) -> str:
    """The address of a node in the network, or a name that stands for it: by slurmctld, else by
    slurm.conf, else the node's own name. OSError: it is no name of a node."""
    if not NODE_NAME.fullmatch(name):
        raise OSError(f"{name!r:.60} is no name of a node")
    command = ("scontrol", "--oneliner", "show", "node", name)
    with contextlib.suppress(OSError):
        done = await children.run(*command, env=env, patience_s=ADDRESS_S)
        found = NODE_ADDRESS.search(done.out) if done.status == 0 and not done.fault else None
        if found:
            return found[1]
    return _readable(conf).node(name).get("nodeaddr") or name

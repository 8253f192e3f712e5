"""gpu-leased.toml: the site's paths, defaults and limits.

Every key is a field below: what may stand there, its default, its meaning. The parser, its errors,
docs/configuration.md and slurm-conf/gpu-leased.toml are made of these fields (documents.py writes
the last two).
"""
# ruff: noqa: RUF009 # Key.means() gives the same value each time.

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from leased.base import toml_file
from leased.base.errors import Refused
from leased.config import kinds, options
from leased.config.job_sets import JobSet
from leased.config.key import Key
from leased.config.listen_address import ListenAddress
from leased.placement.api import TOGETHER
from leased.policy import DEFAULT as POLICY

DEFAULT_PATH = Path("/etc/gpu-lease/gpu-leased.toml")

# Each table of the file, in its order, and what it is about.
SECTIONS = {
    "daemon": "Where the daemon's files are, and who may ask it.",
    "defaults": "For jobs with a shard and no --gpu-share, and for keys that --gpu-share leaves "
    "out.",
    "limits": "What users may ask for, and what happens to jobs that do not give a GPU back.",
    "classes": "Which jobs are services, which go first on a GPU (class:online), and which take "
    "what those leave (class:offline): docs/classes.md. A set of jobs is a list of partition:NAME, "
    "qos:NAME, account:NAME, user:NAME and all.",
    "device": 'All devices. A table [device.0] or [device."GPU-..."] has the same keys for one.',
    "strays": "Processes that use a shared GPU without a lease: see SECURITY.md.",
    "peers": "How the daemons of a job on several nodes reach each other (docs/across.md).",
    "metrics": "What gpu-leased-metrics shows Prometheus (docs/metrics.md). It reads these keys "
    "when it starts.",
    "placer": "gpu-lease-placer on slurmctld's host, which lets pending jobs with labels or shares "
    "start where they fit (docs/placement.md). It reads these keys when it starts.",
}


# Our own defaults of the options. Keys for which it matters that the site chose them are left out.
# None by default, or for the GPU to say.
_NONE = dict.fromkeys(
    ("affinity", "anti_affinity", "exclusion", "job_class", "space", "sm", "chain")
)
_OPTIONS = replace(options.PLAIN, mem_fraction=None, memory=None, **_NONE).text()


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option of every program that reads the file."""
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_PATH,
        metavar="FILE",
        help=f"the configuration file ({DEFAULT_PATH})",
    )


@dataclass(frozen=True)
class DeviceConfig:
    """[device]. memory, mem_per_shard ("": none) and reserve stay text, since the device's size is
    only known later."""

    memory: str = Key("device.memory", kinds.SOME, "100%").means(
        "How much of the device's memory jobs may use."
    )
    mem_per_shard: str = Key("device.mem_per_shard", kinds.SOME_OR_NONE, "").means(
        "How much of the device's memory a job may have for each of its shards; empty: shards say "
        "nothing of memory (docs/admin.md, Shards that stand for memory)."
    )
    reserve: str = Key("device.reserve", kinds.RESERVE, kinds.AUTO).means(
        'How much memory is kept free for contexts; "auto": as much as they are measured to take.'
    )
    policy: str = Key("device.policy", kinds.POLICY, POLICY).means(
        'Who is next: "fcfs" serves who came first, "fair" gives equal time (docs/daemon.md).'
    )
    space: str = Key("device.space", kinds.word(kinds.SPACES), options.TIME).means(
        'How jobs that are on the device at once share it: "time", by time slices, or "mps", by a '
        "server of NVIDIA's MPS that the daemon runs (docs/mps.md). It changes when no job is on "
        "the device."
    )
    mps_together: str = Key("device.mps_together", kinds.word(TOGETHER), TOGETHER[0]).means(
        "Whose jobs may be on the device at once under MPS, where a fault of one ends all: those "
        'of one "user", of one "chain" (docs/chains.md), or of "any" users.'
    )
    link_gib_s: float = Key("device.link_gib_s", kinds.LINK_SPEED, 0).means(
        "The speed of the link between device and host; 0: it is measured at handoffs."
    )


@dataclass(frozen=True)
class ClassesConfig:
    """[classes]. online_memory stays text, since the device's size is only known later."""

    online: JobSet = Key("classes.online", kinds.JOBS, []).means(
        "Jobs that are online if they do not say their class."
    )
    offline: JobSet = Key("classes.offline", kinds.JOBS, []).means("The same for offline.")
    may_online: JobSet = Key("classes.may_online", kinds.JOBS, []).means(
        "Jobs that may say class:online, beside those of classes.online. Everybody may say "
        "class:offline and class:none."
    )
    online_memory: str = Key("classes.online_memory", kinds.SOME, "100%").means(
        "How much of a GPU's memory an online job may have at most."
    )
    controller: str = Key("classes.controller", kinds.word(kinds.CONTROLLERS), "feedback").means(
        'How the time of offline jobs is cut: "feedback" by how long the work of online jobs '
        'takes, "pid" by the GPU\'s load, "slices" not at all.'
    )
    unhealthy: str = Key("classes.unhealthy", kinds.word(kinds.UNHEALTHY), "log").means(
        'What follows where a GPU is not well for offline jobs (docs/classes.md): "log" it, '
        '"refuse" new ones, or also "evict" those that are there when it is over its limits.'
    )
    requeues: int = Key("classes.requeues", kinds.WAITING, 3).means(
        "A job that has begun anew so often is not evicted."
    )


@dataclass(frozen=True)
class StraysConfig:
    """[strays]: see leased/processes/stray.py, Policy."""

    action: str = Key("strays.action", kinds.word(kinds.STRAYS), "warn").means(
        'What happens to a process that uses a GPU without a lease: "count" it, "warn" of it in '
        'the journal, or also "end" its step.'
    )
    grace_ns: int = Key("strays.grace", kinds.TIME, "10s").means(
        "How long such a process may run before its step is ended."
    )
    allow: tuple[str, ...] = Key("strays.allow", kinds.USERS, ["root", "dcgm"]).means(
        "Users whose processes are named in the journal, but never held against a job."
    )


@dataclass(frozen=True)
class MetricsConfig:
    """[metrics], for gpu-leased-metrics. listen: None: it listens nowhere. job_devices: the most
    series of a metric. job_mapping_dir: None: no files are written."""

    listen: ListenAddress | None = Key("metrics.listen", kinds.LISTEN, "").means(
        "Where Prometheus finds the metrics: an address and port on loopback, or a UNIX socket; "
        "empty: the metrics are not served."
    )
    job_devices: int = Key("metrics.job_devices", kinds.SERIES, 2048).means(
        "How many series each metric of jobs may have, one for each job and GPU. Jobs that begin "
        "when there are that many are left out."
    )
    job_mapping_dir: Path | None = Key("metrics.job_mapping_dir", kinds.PATH_OR_NONE, "").means(
        "The directory for the files that tell dcgm-exporter which jobs have which GPU, for its "
        "--hpc-job-mapping-dir; empty: none. The unit may write "
        '"/run/gpu-leased-metrics/jobs".'
    )


@dataclass(frozen=True)
class PlacerConfig:
    """[placer], for gpu-lease-placer. rate: changes a second. reserve_after_ns: 0: never."""

    interval_ns: int = Key("placer.interval", kinds.TIME, "1s").means(
        "How long the placer waits between two looks at Slurm's jobs and nodes. It waits at least "
        "three times as long as its last look took, up to 10 s."
    )
    hold_ns: int = Key("placer.hold", kinds.PUT_OFF, "5m").means(
        "For how long a job that fits nowhere is put off at a time. If the placer is killed and "
        "does not come back, the job begins that much later at most."
    )
    rate: float = Key("placer.rate", kinds.RATE, 20).means(
        "How many jobs the placer changes in a second, at most."
    )
    reserve_after_ns: int = Key("placer.reserve_after", kinds.TIME_OR_0, "30m").means(
        "How long a job waits that fits nowhere until a GPU is kept for it. One GPU at a time is "
        "kept, for the job that has waited for longest; jobs that would make it wait longer do "
        'not go there. "0": none is kept.'
    )
    state_dir: Path = Key("placer.state_dir", kinds.PATH, "/var/lib/gpu-lease-placer").means(
        "The directory in which the placer keeps what it remembers of jobs."
    )
    runtime_dir: Path = Key("placer.runtime_dir", kinds.PATH, "/run/gpu-lease-placer").means(
        "The directory of the placer's sign of life. gpu_share.lua has to name the same path."
    )


@dataclass(frozen=True)
class Config:
    """The whole configuration.

    record: None: nothing is recorded. record_most: bytes. defaults: every key has a value.
    memory_chosen: the site itself has chosen the value of memory. park_after_ns: 0: never.
    peers_port: 0: jobs on several nodes cannot share GPUs. peers_addresses: by node, host and port.
    """

    runtime_dir: Path = Key("daemon.runtime_dir", kinds.SOCKET_FOLDER, "/run/gpu-leased").means(
        "The directory of the sockets, tenant.sock and admin.sock.", at_start=True
    )
    state_dir: Path = Key("daemon.state_dir", kinds.PATH, "/var/lib/gpu-leased").means(
        "The directory of usage.db, in which usage and settings survive a restart of the daemon.",
        at_start=True,
    )
    preload: str = Key("daemon.preload", kinds.LIBRARY, "/usr/lib/gpu-lease/libgpulease.so").means(
        "The interposer, which is put into the processes of sharing jobs."
    )
    admin_group: str = Key("daemon.admin_group", kinds.TEXT, "").means(
        "The group whose members may use gpu-leasectl as root does; empty: root alone."
    )
    slurm_conf: str = Key("daemon.slurm_conf", kinds.SLURM_CONF, "").means(
        "SLURM_CONF for Slurm's commands and for writing usage; empty: Slurm's own default."
    )
    record: Path | None = Key("daemon.record", kinds.PATH_OR_NONE, "").means(
        "The file to record every event in that leases depend on (docs/daemon.md, A record); "
        'empty: none is kept. The unit may write "/var/lib/gpu-leased/record".'
    )
    record_most: int = Key("daemon.record_most", kinds.FILE_SIZE, "64MiB").means(
        "The largest size of the record and the older one, FILE.1, together."
    )
    mps_control: Path = Key(
        "daemon.mps_control", kinds.PATH, "/usr/bin/nvidia-cuda-mps-control"
    ).means("NVIDIA's program that runs the MPS servers of GPUs with device.space (docs/mps.md).")
    tell_placer: bool = Key("daemon.tell_placer", kinds.SWITCH, False).means(
        "Whether the daemon writes limits and defaults.options into the Comment of its node in "
        "Slurm, beside what stands there, so that gpu-lease-placer heeds them "
        "(docs/placement.md)."
    )
    defaults: options.Options = Key("defaults.options", kinds.OPTIONS, _OPTIONS).means(
        "The options of jobs that give none themselves. If memory is left out it is memory:auto, "
        "and copies are kept in the node's memory alone; if memory:auto is written here, copies "
        "are kept in the job's own memory where the node has none for them."
    )
    quantum_min_ns: int = Key("limits.quantum_min", kinds.TIME, "30ms").means(
        "The shortest quantum that a job may ask for. A handoff takes as long after a short "
        "quantum as after a long one."
    )
    quantum_max_ns: int = Key("limits.quantum_max", kinds.TIME, "10m").means(
        "The longest quantum that a job may ask for."
    )
    in_flight_ns: int = Key("limits.in_flight", kinds.TIME, "100ms").means(
        "How much work a holder may have submitted ahead while another job waits."
    )
    drain_ns: int = Key("limits.drain", kinds.TIME, "10s").means(
        "How long a revoked job may take to finish the work that it submitted. After that it has "
        "overrun, and after the same time again the GPU goes to the next job."
    )
    overrun: str = Key("limits.overrun", kinds.word(kinds.OVERRUN), "log").means(
        'What happens to a job that overruns: "log" it, "signal" it, or also "cancel" it when '
        "the GPU goes to the next job. A job that is suspended or stopped is neither signalled nor "
        "cancelled."
    )
    overrun_signal: str = Key("limits.overrun_signal", kinds.word(kinds.SIGNALS), "TERM").means(
        'The signal for a job that overruns, where overrun is "signal" or "cancel".'
    )
    park_after_ns: int = Key("limits.park_after", kinds.TIME_OR_NEVER, kinds.NEVER).means(
        "A job that has left its GPU idle for this long is parked: its memory leaves the GPU "
        "until its next launch."
    )
    holder_shown: str = Key("limits.holder_shown", kinds.word(kinds.HOLDER_SHOWN), "job").means(
        "What gpu-leasectl mine shows users of other users' jobs that come before theirs: nothing, "
        "the job's number, or also its user."
    )
    move: str = Key("limits.move", kinds.word(kinds.MOVE), "root").means(
        "Who may move a job to another GPU of its node: nobody, root, or also the job's user. "
        "Slurm does not learn of it (docs/moving.md)."
    )
    move_idle: bool = Key("limits.move_idle", kinds.SWITCH, False).means(
        "Whether the daemon itself moves a job that takes turns with others, since their memory "
        "does not fit together, to a GPU that has room for it and is idle."
    )
    swap: bool = Key("limits.swap", kinds.SWITCH, True).means(
        "Whether users may choose memory:swap, which needs host memory (docs/swap.md)."
    )
    swap_host: str = Key("limits.swap_host", kinds.AMOUNT, "80%").means(
        "How much host memory copies of swapped memory may take, of all jobs together. Keep Slurm "
        "from giving it to jobs, by MemSpecLimit in slurm.conf."
    )
    swap_ahead: str = Key("limits.swap_ahead", kinds.AMOUNT, "50%").means(
        'How much host memory may be prepared for copies before a handoff needs it; "0%": none.'
    )
    swap_huge_pages: bool = Key("limits.swap_huge_pages", kinds.SWITCH, False).means(
        "Whether copies of swapped memory may lie in huge pages that the site has reserved."
    )
    swap_clean: bool = Key("limits.swap_clean", kinds.SWITCH, True).means(
        "Whether swapped memory that still equals its copy is evicted without being copied again; "
        "the GPU compares them by fingerprints (docs/swap.md)."
    )
    swap_full: str = Key("limits.swap_full", kinds.word(kinds.SWAP_FULL), "refuse").means(
        "Whether an allocation for which swap_host may not suffice is refused, or waits."
    )
    request_max: float = Key("limits.request_max", kinds.PART, 1.0).means(
        "How much of a GPU's time one job may request."
    )
    request_full: str = Key("limits.request_full", kinds.word(kinds.REQUEST_FULL), "refuse").means(
        "Whether a job that requests more of a GPU's time than other jobs have left is refused, or "
        "waits until enough of them have ended."
    )
    request_waiting: int = Key("limits.request_waiting", kinds.WAITING, 16).means(
        'How many jobs of the node may wait for that, where request_full is "wait"; further jobs '
        "are refused."
    )
    lock_off: bool = Key("limits.lock_off", kinds.SWITCH, True).means(
        "Whether users may choose lock:off."
    )
    oversub: bool = Key("limits.oversub", kinds.SWITCH, True).means(
        "Whether users may choose oversub:on: one job with more memory than the device holds."
    )
    exclusion: bool = Key("limits.exclusion", kinds.SWITCH, False).means(
        "Whether users may choose exclusion:LABEL, which keeps everybody else's jobs off a GPU."
    )
    dmem: bool = Key("limits.dmem", kinds.SWITCH, False).means(
        "Whether the kernel too keeps jobs to what they may have of a GPU's memory (mem, "
        "mem_per_shard), where its cgroups have the controller dmem and the driver uses it "
        "(docs/admin.md, The kernel's cap)."
    )
    online_slowdown: float = Key("limits.online_slowdown", kinds.SLOWDOWN, 0.05).means(
        "By how much the work of online jobs may take longer than alone, for the sake of offline "
        "jobs beside them, or 0.3 ms for each burst where that is more."
    )
    peers_port: int = Key("peers.port", kinds.PORT, 0).means(
        "The TCP port at which the daemons of other nodes reach this one, the same on all nodes; "
        "0: none, and jobs on several nodes cannot share GPUs.",
        at_start=True,
    )
    peers_listen: str = Key("peers.listen", kinds.ADDRESS, "").means(
        "The address of this node at which it listens there; empty: all of them.", at_start=True
    )
    peers_addresses: dict[str, tuple[str, int]] = Key("peers.addresses", kinds.ADDRESSES, []).means(
        "Where daemons listen that are not at the NodeAddr that Slurm says, or not at this port, "
        'such as "node1=10.0.0.1:7070".',
        at_start=True,
    )
    peers_munge: str = Key("peers.munge_socket", kinds.SLURM_CONF, "").means(
        "The socket of munged, by which daemons prove who they are; empty: its usual one.",
        at_start=True,
    )
    peers_tls_certificate: str = Key("peers.tls_certificate", kinds.SLURM_CONF, "").means(
        "The certificate of this node (PEM), with which daemons speak TLS; set all three of these "
        "on all nodes, or none. Empty: they do not, and what they say is proven and not secret.",
        at_start=True,
    )
    peers_tls_key: str = Key("peers.tls_key", kinds.SLURM_CONF, "").means(
        "Its key (PEM, without a passphrase), which only root should be able to read.",
        at_start=True,
    )
    peers_tls_ca: str = Key("peers.tls_ca", kinds.SLURM_CONF, "").means(
        "The certificates of the authorities that have signed those of the other nodes (PEM).",
        at_start=True,
    )
    memory_chosen: bool = False
    classes: ClassesConfig = ClassesConfig()
    device: DeviceConfig = DeviceConfig()
    devices: dict[str, DeviceConfig] = field(default_factory=dict)
    strays: StraysConfig = StraysConfig()
    metrics: MetricsConfig = MetricsConfig()
    placer: PlacerConfig = PlacerConfig()

    @property
    def tenant_socket(self) -> Path:
        """Where jobs and their users find the daemon."""
        return self.runtime_dir / "tenant.sock"

    @property
    def admin_socket(self) -> Path:
        """Where root, the admin group and the plugin find the daemon."""
        return self.runtime_dir / "admin.sock"

    def for_device(self, index: int, uuid: str) -> DeviceConfig:
        """The settings of one device: by its UUID, else its index, else those of all."""
        return self.devices.get(uuid) or self.devices.get(str(index)) or self.device


# The tables that have a class of their own.
PARTS = {
    "classes": ClassesConfig,
    "device": DeviceConfig,
    "strays": StraysConfig,
    "metrics": MetricsConfig,
    "placer": PlacerConfig,
}
KEYS: tuple[Key, ...] = tuple(
    replace(one.metadata["key"], field=one.name)
    for made in (Config, *PARTS.values())
    for one in fields(made)
    if "key" in one.metadata
)


def of_section(section: str) -> dict[str, Key]:
    """The keys of one table, by name."""
    return {row.name: row for row in KEYS if row.section == section}


def _fields(table: dict[str, Any], section: str, where: str = "") -> dict[str, Any]:
    """The values of a table, by the fields of its dataclass. where: the table's name in errors."""
    known = of_section(section)
    where = where or section
    for name in table:
        if name not in known:
            words = f"{where}.{kinds.printable(name)} is not known"
            raise Refused(words, f"the keys are {', '.join(known)}")
    return {known[name].field: known[name].read(table[name], f"{where}.{name}") for name in table}


def from_dict(raw: dict[str, Any]) -> Config:
    """The configuration of a parsed file. Refused names the key at fault."""
    for name, table in raw.items():
        if name not in SECTIONS:
            words = f"[{kinds.printable(name)}] is not known"
            raise Refused(words, f"the tables are {', '.join(SECTIONS)}")
        if not isinstance(table, dict):
            raise Refused(f"[{name}] is not a table", f"write a line [{name}], and its keys below")
    of_all = raw.get("device", {})
    single = {name: value for name, value in of_all.items() if isinstance(value, dict)}
    tables = raw | {"device": {key: of_all[key] for key in of_all.keys() - single.keys()}}
    read = {name: _fields(table, name) for name, table in tables.items()}
    parts: dict[str, Any] = {name: made(**read.pop(name, {})) for name, made in PARTS.items()}
    parts["devices"] = {
        kinds.device_name(name, "device"): replace(
            parts["device"], **_fields(table, "device", f"device.{name}")
        )
        for name, table in single.items()
    }
    said = options.parse(raw.get("defaults", {}).get("options", ""))
    plain = {name: value for table in read.values() for name, value in table.items()}
    made = Config(**plain, **parts, memory_chosen=said.memory is not None)
    if made.defaults.oversub and any(
        one.mem_per_shard for one in (made.device, *made.devices.values())
    ):
        raise Refused(
            "defaults.options has oversub:on, and device.mem_per_shard keeps jobs to the memory of "
            "their shards",
            "leave one of them out",
        )
    return made


def parse(data: bytes) -> Config:
    """The configuration of a file's bytes. Refused names the line or the key at fault."""
    return from_dict(toml_file.parse(data))


def load(path: Path) -> Config:
    """Read the file; a missing default file is an empty one. Refused names file and key."""
    try:
        data = toml_file.read(path)
    except FileNotFoundError as fault:
        if path == DEFAULT_PATH and not path.is_symlink():
            return Config()
        raise Refused(f"cannot read {path}: {fault.strerror}", "name one that exists") from None
    try:
        return parse(data)
    except Refused as fault:
        raise Refused(f"{path}: {fault}", fault.hint) from None

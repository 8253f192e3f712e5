"""gpu-leased.toml: the site's paths, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leased.base import toml_file
from leased.base.errors import Refused
from leased.config import config_values as values
from leased.config import options
from leased.policy import DEFAULT
from leased.policy import names as policy_names

DEFAULT_PATH = Path("/etc/gpu-lease/gpu-leased.toml")
AUTO = "auto"
NEVER = "never"
OVERRUN = ("log", "signal", "cancel")
STRAYS = ("count", "warn", "end")
SWAP_FULL = ("refuse", "wait")
HOLDER_SHOWN = ("nothing", "job", "user")
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "KILL")

# Every key that may stand in the file, and its type.
KEYS: dict[str, dict[str, type]] = {
    "daemon": {
        "runtime_dir": str,
        "state_dir": str,
        "preload": str,
        "admin_group": str,
        "slurm_conf": str,
        "record": str,
        "record_most": str,
    },
    "defaults": {"options": str},
    "limits": {
        "quantum_min": str,
        "quantum_max": str,
        "in_flight": str,
        "drain": str,
        "overrun": str,
        "park_after": str,
        "overrun_signal": str,
        "holder_shown": str,
        "swap": bool,
        "swap_host": str,
        "swap_full": str,
        "swap_huge_pages": bool,
        "lock_off": bool,
        "oversub": bool,
    },
    "device": {
        "memory": str,
        "reserve": str,
        "link_gib_s": float,
        "try_turns": bool,
        "policy": str,
    },
    "strays": {"action": str, "grace": str, "allow": list},
}


@dataclass(frozen=True)
class DeviceConfig:
    """memory: cap of what jobs may use; reserve: kept for contexts; both as text, see README.
    policy: who is next; see leased/policy."""

    memory: str = "100%"
    reserve: str = AUTO
    link_gib_s: float = 0.0
    try_turns: bool = True
    policy: str = DEFAULT


@dataclass(frozen=True)
class StraysConfig:
    """Processes that use a leased GPU without a lease: see strays.Policy."""

    action: str = "warn"
    grace_ns: int = 10_000_000_000
    allow: tuple[str, ...] = ("root", "dcgm")


@dataclass(frozen=True)
class Config:
    """The whole configuration; every field has a default."""

    runtime_dir: Path = Path("/run/gpu-leased")
    state_dir: Path = Path("/var/lib/gpu-leased")
    preload: str = "/usr/lib/x86_64-linux-gnu/gpu-lease/libgpulease.so"
    admin_group: str = ""
    slurm_conf: str = ""
    record: Path | None = None  # the file; None: nothing is recorded
    record_most: int = 64 << 20  # bytes
    defaults: options.Options = options.PLAIN
    memory_chosen: bool = False  # by the site, in its defaults
    quantum_min_ns: int = 100_000_000
    quantum_max_ns: int = 600_000_000_000
    in_flight_ns: int = 100_000_000  # work submitted ahead while somebody waits
    drain_ns: int = 10_000_000_000  # from a revoke to an overrun
    park_after_ns: int = 0  # idle so long, a job's memory leaves the GPU; 0: it may stay
    overrun: str = "log"  # what happens then: log, signal, cancel
    overrun_signal: str = "TERM"
    holder_shown: str = "job"  # to other users, of who has the GPU: nothing, job, user
    swap: bool = True  # may users choose memory:swap?
    swap_host: str = "80%"  # of the host's memory for what all their jobs swap
    swap_full: str = "refuse"  # who would need more than that: refuse, or wait
    swap_huge_pages: bool = False  # take those that the site has reserved
    lock_off: bool = True
    oversub: bool = True
    device: DeviceConfig = DeviceConfig()
    devices: dict[str, DeviceConfig] = field(default_factory=dict)
    strays: StraysConfig = StraysConfig()

    def for_device(self, index: int, uuid: str) -> DeviceConfig:
        """The settings of one device: by its UUID, else its index, else those of all."""
        return self.devices.get(uuid) or self.devices.get(str(index)) or self.device


_Devices = dict[str, DeviceConfig]  # by index or UUID


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise Refused(f"[{name}] is not a table")
    return table


def _checked(table: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    return values.checked(table, KEYS[name], where)


def _device(table: dict[str, Any], where: str, base: DeviceConfig) -> DeviceConfig:
    table = _checked(table, "device", where)
    reserve = table.get("reserve", base.reserve)
    return DeviceConfig(
        memory=values.some(table.get("memory", base.memory), f"{where}.memory"),
        reserve=reserve if reserve == AUTO else values.amount(reserve, f"{where}.reserve"),
        link_gib_s=values.gib_s(table.get("link_gib_s", base.link_gib_s), f"{where}.link_gib_s"),
        try_turns=table.get("try_turns", base.try_turns),
        policy=values.one_of(
            table.get("policy", base.policy), tuple(policy_names()), f"{where}.policy"
        ),
    )


def _devices(raw: dict[str, Any], base: DeviceConfig) -> tuple[DeviceConfig, _Devices]:
    """The settings of all devices, and those of single ones."""
    table = _table(raw, "device")
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    device = _device(plain, "device", base)
    return device, {
        values.device_name(key, "device"): _device(value, f"device.{key}", device)
        for key, value in table.items()
        if isinstance(value, dict)
    }


def _strays(table: dict[str, Any]) -> StraysConfig:
    base = StraysConfig()
    return StraysConfig(
        values.one_of(table.get("action", base.action), STRAYS, "strays.action"),
        values.time_ns(table.get("grace", "10s"), "strays.grace"),
        values.users(table.get("allow", list(base.allow)), "strays.allow"),
    )


def _daemon(table: dict[str, Any]) -> dict[str, Any]:
    """The fields of [daemon]."""
    base = Config()
    conf, record = table.get("slurm_conf", base.slurm_conf), table.get("record", "")
    return {
        "runtime_dir": values.socket_folder(
            table.get("runtime_dir", str(base.runtime_dir)), "daemon.runtime_dir"
        ),
        "state_dir": Path(
            values.absolute(table.get("state_dir", str(base.state_dir)), "daemon.state_dir")
        ),
        "preload": values.library(table.get("preload", base.preload), "daemon.preload"),
        "admin_group": table.get("admin_group", base.admin_group),
        "slurm_conf": values.absolute(conf, "daemon.slurm_conf") if conf else "",
        "record": Path(values.absolute(record, "daemon.record")) if record else None,
        "record_most": values.file_size(table.get("record_most", "64MiB"), "daemon.record_most"),
    }


def _limits(table: dict[str, Any]) -> dict[str, Any]:
    """The fields of [limits]."""

    def time(key: str, usual: str) -> int:
        return values.time_ns(table.get(key, usual), f"limits.{key}")

    def one_of(key: str, usual: str, known: tuple[str, ...]) -> str:
        return values.one_of(table.get(key, usual), known, f"limits.{key}")

    return {
        "quantum_min_ns": time("quantum_min", "100ms"),
        "quantum_max_ns": time("quantum_max", "10m"),
        "in_flight_ns": time("in_flight", "100ms"),
        "drain_ns": time("drain", "10s"),
        "park_after_ns": 0 if table.get("park_after", NEVER) == NEVER else time("park_after", ""),
        "overrun": one_of("overrun", "log", OVERRUN),
        "overrun_signal": one_of("overrun_signal", "TERM", SIGNALS),
        "holder_shown": one_of("holder_shown", "job", HOLDER_SHOWN),
        "swap": table.get("swap", True),
        "swap_host": values.amount(table.get("swap_host", "80%"), "limits.swap_host"),
        "swap_full": one_of("swap_full", "refuse", SWAP_FULL),
        "swap_huge_pages": table.get("swap_huge_pages", False),
        "lock_off": table.get("lock_off", True),
        "oversub": table.get("oversub", True),
    }


def from_dict(raw: dict[str, Any]) -> Config:
    """The configuration of a parsed file. Refused names the key at fault."""
    for name in raw:
        if name not in KEYS:
            words = f"[{values.printable(name)}] is not known"
            raise Refused(words, f"the tables are {', '.join(KEYS)}")
    base = Config()
    text = _checked(_table(raw, "defaults"), "defaults", "defaults").get("options", "")
    wanted = values.named("defaults.options", lambda: options.parse(text))
    device, devices = _devices(raw, base.device)
    return Config(
        **_daemon(_checked(_table(raw, "daemon"), "daemon", "daemon")),
        **_limits(_checked(_table(raw, "limits"), "limits", "limits")),
        defaults=wanted.over(base.defaults),
        memory_chosen=wanted.memory is not None,
        device=device,
        devices=devices,
        strays=_strays(_checked(_table(raw, "strays"), "strays", "strays")),
    )


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
        raise Refused(f"cannot read {path}: {fault.strerror}") from None
    try:
        return parse(data)
    except Refused as fault:
        raise Refused(f"{path}: {fault}", fault.hint) from None

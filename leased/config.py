"""gpu-leased.toml: the site's paths, defaults and limits."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from leased import options
from leased.errors import Refused
from leased.strays import ACTIONS

DEFAULT_PATH = Path("/etc/gpu-lease/gpu-leased.toml")
AUTO = "auto"
OVERRUN = ("log", "signal", "cancel")
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "KILL")

# Every key that may stand in the file, and its type.
KEYS: dict[str, dict[str, type]] = {
    "daemon": {
        "runtime_dir": str,
        "state_dir": str,
        "preload": str,
        "admin_group": str,
        "slurm_conf": str,
    },
    "defaults": {"options": str},
    "limits": {
        "quantum_min": str,
        "quantum_max": str,
        "in_flight": str,
        "drain": str,
        "overrun": str,
        "overrun_signal": str,
        "swap": bool,
        "swap_host": str,
        "lock_off": bool,
        "oversub": bool,
    },
    "device": {"memory": str, "reserve": str, "link_gib_s": float, "try_turns": bool},
    "strays": {"action": str, "grace": str, "allow": list},
}


@dataclass(frozen=True)
class DeviceConfig:
    """memory: cap of what jobs may use; reserve: kept for contexts; both as text, see README."""

    memory: str = "100%"
    reserve: str = AUTO
    link_gib_s: float = 0.0
    try_turns: bool = True


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
    defaults: options.Options = field(
        default_factory=lambda: options.parse("tq:30,lock:auto,oversub:off,memory:managed")
    )
    quantum_min_ns: int = 100_000_000
    quantum_max_ns: int = 600_000_000_000
    in_flight_ns: int = 100_000_000  # work submitted ahead while somebody waits
    drain_ns: int = 10_000_000_000  # from a revoke to an overrun
    overrun: str = "log"  # what happens then: log, signal, cancel
    overrun_signal: str = "TERM"
    swap: bool = True  # may users choose memory:swap?
    swap_host: str = "80%"  # of the host's memory for what all their jobs swap
    lock_off: bool = True
    oversub: bool = True
    device: DeviceConfig = DeviceConfig()
    devices: dict[str, DeviceConfig] = field(default_factory=dict)
    strays: StraysConfig = StraysConfig()

    def for_device(self, index: int, uuid: str) -> DeviceConfig:
        """The settings of one device: by its UUID, else its index, else those of all."""
        return self.devices.get(uuid) or self.devices.get(str(index)) or self.device


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise Refused(f"[{name}] is not a table")
    return table


def _checked(table: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """The table, with every key known and of its type."""
    for key, value in table.items():
        kind = KEYS[name].get(key)
        if kind is None:
            raise Refused(f"{where}.{key} is not known", f"the keys are {', '.join(KEYS[name])}")
        wanted = (int, float) if kind is float else kind
        if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
            raise Refused(f"{where}.{key} = {value!r} is not a {kind.__name__}")
    return table


T = TypeVar("T")


def _named(where: str, read: Callable[[], T]) -> T:
    """What `read` gives; its refusal with the key's name in front."""
    try:
        return read()
    except Refused as fault:
        raise Refused(f"{where}: {fault}", fault.hint) from None


def _one_of(value: str, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise Refused(f"{where} = {value!r} is not known", f"use one of {', '.join(known)}")
    return value


def _amount(text: str, where: str) -> str:
    _named(where, lambda: options.parse_amount(text, 1 << 40))
    return text


def _device(table: dict[str, Any], where: str, base: DeviceConfig) -> DeviceConfig:
    table = _checked(table, "device", where)
    made = DeviceConfig(
        memory=table.get("memory", base.memory),
        reserve=table.get("reserve", base.reserve),
        link_gib_s=float(table.get("link_gib_s", base.link_gib_s)),
        try_turns=table.get("try_turns", base.try_turns),
    )
    _named(f"{where}.memory", lambda: options.parse_amount(made.memory, 1 << 40))
    if made.reserve != AUTO:
        _named(f"{where}.reserve", lambda: options.parse_amount(made.reserve, 1 << 40))
    return made


def _strays(table: dict[str, Any]) -> StraysConfig:
    base = StraysConfig()
    allow = table.get("allow", list(base.allow))
    if not all(isinstance(name, str) for name in allow):
        raise Refused(f"strays.allow = {allow!r} is not a list of users", 'write ["root"]')
    grace = _named("strays.grace", lambda: options.parse_time(table.get("grace", "10s")))
    action = _one_of(table.get("action", base.action), ACTIONS, "strays.action")
    return StraysConfig(action, grace, tuple(allow))


def from_dict(raw: dict[str, Any]) -> Config:
    """The configuration of a parsed file. Refused names the key at fault."""
    for name in raw:
        if name not in KEYS:
            raise Refused(f"[{name}] is not known", f"the tables are {', '.join(KEYS)}")
    base = Config()
    daemon = _checked(_table(raw, "daemon"), "daemon", "daemon")
    defaults = _checked(_table(raw, "defaults"), "defaults", "defaults")
    limits = _checked(_table(raw, "limits"), "limits", "limits")
    table = _table(raw, "device")
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    device = _device(plain, "device", base.device)
    return Config(
        runtime_dir=Path(daemon.get("runtime_dir", base.runtime_dir)),
        state_dir=Path(daemon.get("state_dir", base.state_dir)),
        preload=daemon.get("preload", base.preload),
        admin_group=daemon.get("admin_group", base.admin_group),
        slurm_conf=daemon.get("slurm_conf", base.slurm_conf),
        defaults=_named(
            "defaults.options", lambda: options.parse(defaults.get("options", ""))
        ).over(base.defaults),
        quantum_min_ns=_named(
            "limits.quantum_min", lambda: options.parse_time(limits.get("quantum_min", "100ms"))
        ),
        quantum_max_ns=_named(
            "limits.quantum_max", lambda: options.parse_time(limits.get("quantum_max", "10m"))
        ),
        in_flight_ns=_named(
            "limits.in_flight", lambda: options.parse_time(limits.get("in_flight", "100ms"))
        ),
        drain_ns=_named("limits.drain", lambda: options.parse_time(limits.get("drain", "10s"))),
        overrun=_one_of(limits.get("overrun", "log"), OVERRUN, "limits.overrun"),
        overrun_signal=_one_of(
            limits.get("overrun_signal", "TERM"), SIGNALS, "limits.overrun_signal"
        ),
        swap=limits.get("swap", True),
        swap_host=_amount(limits.get("swap_host", "80%"), "limits.swap_host"),
        lock_off=limits.get("lock_off", True),
        oversub=limits.get("oversub", True),
        device=device,
        devices={
            key: _device(value, f"device.{key}", device)
            for key, value in table.items()
            if isinstance(value, dict)
        },
        strays=_strays(_checked(_table(raw, "strays"), "strays", "strays")),
    )


def load(path: Path) -> Config:
    """Read the file; a missing default file is an empty one. Refused names file and key."""
    if not path.exists() and path == DEFAULT_PATH:
        return Config()
    try:
        with path.open("rb") as file:
            return from_dict(tomllib.load(file))
    except OSError as fault:
        raise Refused(f"cannot read {path}: {fault.strerror}") from None
    except tomllib.TOMLDecodeError as fault:
        raise Refused(f"{path}: {fault}") from None
    except Refused as fault:
        raise Refused(f"{path}: {fault}", fault.hint) from None

"""gpu-leased.toml: the site's paths, defaults and limits."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from leased.base import toml_file
from leased.base.errors import Refused
from leased.config import config_values as values
from leased.config import keys, options
from leased.config.job_sets import JobSet
from leased.config.listen_address import ListenAddress

DEFAULT_PATH = Path("/etc/gpu-lease/gpu-leased.toml")
_OPTIONS = keys.default("defaults.options").over(options.PLAIN)


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

    memory: str = keys.default("device.memory")
    reserve: str = keys.default("device.reserve")
    link_gib_s: float = keys.default("device.link_gib_s")
    policy: str = keys.default("device.policy")
    space: str = keys.default("device.space")
    mps_together: str = keys.default("device.mps_together")
    mem_per_shard: str = keys.default("device.mem_per_shard")


@dataclass(frozen=True)
class ClassesConfig:
    """[classes]. online_memory stays text, since the device's size is only known later."""

    online: JobSet = keys.default("classes.online")
    offline: JobSet = keys.default("classes.offline")
    may_online: JobSet = keys.default("classes.may_online")
    online_memory: str = keys.default("classes.online_memory")
    controller: str = keys.default("classes.controller")
    unhealthy: str = keys.default("classes.unhealthy")
    requeues: int = keys.default("classes.requeues")


@dataclass(frozen=True)
class StraysConfig:
    """[strays]: see leased/processes/stray.py, Policy."""

    action: str = keys.default("strays.action")
    grace_ns: int = keys.default("strays.grace")
    allow: tuple[str, ...] = keys.default("strays.allow")


@dataclass(frozen=True)
class MetricsConfig:
    """[metrics], for gpu-leased-metrics. listen: None: it listens nowhere. job_devices: the most
    series of a metric. job_mapping_dir: None: no files are written."""

    listen: ListenAddress | None = keys.default("metrics.listen")
    job_devices: int = keys.default("metrics.job_devices")
    job_mapping_dir: Path | None = keys.default("metrics.job_mapping_dir")


@dataclass(frozen=True)
class PlacerConfig:
    """[placer], for gpu-lease-placer. rate: changes a second. reserve_after_ns: 0: never."""

    interval_ns: int = keys.default("placer.interval")
    hold_ns: int = keys.default("placer.hold")
    rate: float = keys.default("placer.rate")
    reserve_after_ns: int = keys.default("placer.reserve_after")
    state_dir: Path = keys.default("placer.state_dir")
    runtime_dir: Path = keys.default("placer.runtime_dir")


@dataclass(frozen=True)
class Config:
    """The whole configuration. keys.py says what each field means, and has its default.

    record: None: nothing is recorded. record_most: bytes. defaults: every key has a value.
    memory_chosen: the site itself has chosen the value of memory. park_after_ns: 0: never.
    peers_port: 0: jobs on several nodes cannot share GPUs. peers_addresses: by node, host and port.
    """

    runtime_dir: Path = keys.default("daemon.runtime_dir")
    state_dir: Path = keys.default("daemon.state_dir")
    preload: str = keys.default("daemon.preload")
    admin_group: str = keys.default("daemon.admin_group")
    slurm_conf: str = keys.default("daemon.slurm_conf")
    record: Path | None = keys.default("daemon.record")
    mps_control: Path = keys.default("daemon.mps_control")
    record_most: int = keys.default("daemon.record_most")
    tell_placer: bool = keys.default("daemon.tell_placer")
    defaults: options.Options = _OPTIONS
    memory_chosen: bool = False
    quantum_min_ns: int = keys.default("limits.quantum_min")
    quantum_max_ns: int = keys.default("limits.quantum_max")
    in_flight_ns: int = keys.default("limits.in_flight")
    drain_ns: int = keys.default("limits.drain")
    park_after_ns: int = keys.default("limits.park_after")
    overrun: str = keys.default("limits.overrun")
    overrun_signal: str = keys.default("limits.overrun_signal")
    holder_shown: str = keys.default("limits.holder_shown")
    move: str = keys.default("limits.move")
    move_idle: bool = keys.default("limits.move_idle")
    swap: bool = keys.default("limits.swap")
    swap_host: str = keys.default("limits.swap_host")
    swap_ahead: str = keys.default("limits.swap_ahead")
    swap_full: str = keys.default("limits.swap_full")
    swap_huge_pages: bool = keys.default("limits.swap_huge_pages")
    swap_clean: bool = keys.default("limits.swap_clean")
    request_max: float = keys.default("limits.request_max")
    request_full: str = keys.default("limits.request_full")
    request_waiting: int = keys.default("limits.request_waiting")
    lock_off: bool = keys.default("limits.lock_off")
    oversub: bool = keys.default("limits.oversub")
    exclusion: bool = keys.default("limits.exclusion")
    peers_port: int = keys.default("peers.port")
    peers_listen: str = keys.default("peers.listen")
    peers_addresses: dict[str, tuple[str, int]] = field(
        default_factory=lambda: keys.default("peers.addresses")
    )
    peers_munge: str = keys.default("peers.munge_socket")
    peers_tls_certificate: str = keys.default("peers.tls_certificate")
    peers_tls_key: str = keys.default("peers.tls_key")
    peers_tls_ca: str = keys.default("peers.tls_ca")
    dmem: bool = keys.default("limits.dmem")
    online_slowdown: float = keys.default("limits.online_slowdown")
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


_Devices = dict[str, DeviceConfig]  # by index or UUID


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise Refused(f"[{name}] is not a table", f"write a line [{name}], and its keys below")
    return table


def _fields(table: dict[str, Any], section: str, where: str = "") -> dict[str, Any]:
    """The values of a table, by the fields of its dataclass. where: the table's name in errors."""
    known = keys.of_section(section)
    where = where or section
    values.check(table, {name: key.kind for name, key in known.items()}, where)
    return {known[name].field: known[name].read(table[name], f"{where}.{name}") for name in table}


def _devices(raw: dict[str, Any]) -> tuple[DeviceConfig, _Devices]:
    """The settings of all devices, and those of single ones."""
    table = _table(raw, "device")
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    device = DeviceConfig(**_fields(plain, "device"))
    return device, {
        values.device_name(name, "device"): replace(
            device, **_fields(value, "device", f"device.{name}")
        )
        for name, value in table.items()
        if isinstance(value, dict)
    }


def from_dict(raw: dict[str, Any]) -> Config:
    """The configuration of a parsed file. Refused names the key at fault."""
    for name in raw:
        if name not in keys.SECTIONS:
            words = f"[{values.printable(name)}] is not known"
            raise Refused(words, f"the tables are {', '.join(keys.SECTIONS)}")
    fields = {
        name: value
        for section in ("defaults", "daemon", "limits", "peers")
        for name, value in _fields(_table(raw, section), section).items()
    }
    if "defaults" in fields:
        said = fields["defaults"]
        fields |= {"defaults": said.over(options.PLAIN), "memory_chosen": said.memory is not None}
    device, devices = _devices(raw)
    if fields.get("defaults", _OPTIONS).oversub and any(
        one.mem_per_shard for one in (device, *devices.values())
    ):
        raise Refused(
            "defaults.options has oversub:on, and device.mem_per_shard keeps jobs to the memory of "
            "their shards",
            "leave one of them out",
        )
    classes = ClassesConfig(**_fields(_table(raw, "classes"), "classes"))
    strays = StraysConfig(**_fields(_table(raw, "strays"), "strays"))
    metrics = MetricsConfig(**_fields(_table(raw, "metrics"), "metrics"))
    placer = PlacerConfig(**_fields(_table(raw, "placer"), "placer"))
    return Config(
        **fields,
        classes=classes,
        device=device,
        devices=devices,
        strays=strays,
        metrics=metrics,
        placer=placer,
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
        raise Refused(f"cannot read {path}: {fault.strerror}", "name one that exists") from None
    try:
        return parse(data)
    except Refused as fault:
        raise Refused(f"{path}: {fault}", fault.hint) from None

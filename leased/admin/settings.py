"""The settings that the site makes at run time, by gpu-leasectl set.

A setting is in force until it is given back ("user" or "config"), also after a restart of the
daemon: it is in the store. A setting of one device overrides that of all ("*"), and a new setting
of all replaces those of the devices.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from leased.admin.user_limits import UserLimits
from leased.api import answers
from leased.base.errors import Refused
from leased.base.requests import GIVEN_BACK, OF_DEVICE, OF_NODE, shown
from leased.config import options
from leased.config.config import Config
from leased.config.kinds import AUTO
from leased.core.events import DrainSet, LockSet, QuantumSet
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

ALL = "*"
LOCKS = ("on", "off", "auto")
ANSWERS = {"yes": True, "no": False}
# By key of the node: the limit that it sets.
FIELDS = {
    "user-lock-off": "lock_off",
    "user-oversub": "oversub",
    "quantum-min": "quantum_min_ns",
    "quantum-max": "quantum_max_ns",
}


def parse(key: str, value: str) -> str | int | bool | None:
    """The value of a setting's text; None: it is given back. Refused names key and value."""
    known = OF_DEVICE | OF_NODE
    if key not in known:
        raise Refused(f"{shown(key)} is not a setting", f"known are {', '.join(known)}")
    if value in GIVEN_BACK:
        return None
    try:
        if key in ("quantum", "quantum-min", "quantum-max"):
            return options.parse_time(value)
        if key == "reserve":
            if value != AUTO:
                options.parse_amount(value, 1 << 40)
            return value
    except Refused as fault:
        why = str(fault).partition("; write ")[0]  # that is for jobs, which give nothing back
        raise Refused(f"{key}={value}: {why}", f"use {known[key]}") from None
    if key == "lock" and value in LOCKS:
        return value
    if key not in ("lock", "quantum", "reserve") and value in ANSWERS:
        return ANSWERS[value]
    raise Refused(f"{key} {shown(value)} is not known", f"use {known[key]}")


def _is_understood(device: str, key: str, value: str) -> bool:
    """Whether this release knows a stored setting. Others are kept for the release that does."""
    try:
        parse(key, value)
    except Refused as fault:
        log.error("a stored setting of %s is not applied: %s", shown(device), fault)
        return False
    return True


class Settings:
    """The settings of this node. config: the configuration in force."""

    def __init__(self, leases: Leases, store: Store, config: Callable[[], Config]):
        self.leases = leases
        self.store = store
        self.config = config
        self.values = {
            (device, key): value
            for (device, key), value in store.settings().items()
            if _is_understood(device, key, value)
        }
        for key, gpu in itertools.product(OF_DEVICE, list(leases.gpus)):
            try:
                self._apply(key, [gpu], at_start=True)
            except Refused as fault:
                log.error("the stored setting %s is not applied: %s", key, fault.sentence())

    def of(self, uuid: str, key: str) -> str | None:
        """The text in force for a device, or ALL; None: the jobs' or the configuration's is."""
        value = self.values.get((uuid, key), self.values.get((ALL, key)))
        return None if value in GIVEN_BACK else value

    def limits(self) -> UserLimits:
        """What users may choose now."""
        return self._limits({key: self.of(ALL, key) for key in OF_NODE})

    def _limits(self, texts: dict[str, str | None]) -> UserLimits:
        changed: dict[str, Any] = {}
        for key, name in FIELDS.items():
            text = texts.get(key)
            value = None if text is None else parse(key, text)
            if value is not None:
                changed[name] = value
        return replace(UserLimits.of(self.config()), **changed)

    def change(self, chosen: list[Gpu] | None, wanted: dict[str, str]) -> None:
        """Set these on the devices; None: on all. Refused: nothing has been changed."""
        for key, value in wanted.items():
            self._check(chosen, key, value)
        node = {key: value for key, value in wanted.items() if key in OF_NODE}
        if node:
            texts = {key: self.of(ALL, key) for key in OF_NODE} | node
            self._limits(texts).check_defaults(self.config().defaults)
        for key, value in wanted.items():
            if chosen is None:
                self._keep_for_all(key, value)
            else:
                self._keep(chosen, key, value)
        self.store.flush()
        for key in wanted:
            if key in OF_DEVICE:
                self._apply(key, list(self.leases.gpus) if chosen is None else chosen)

    def _check(self, chosen: list[Gpu] | None, key: str, value: str) -> None:
        parse(key, value)
        if key in OF_NODE and chosen is not None:
            raise Refused(f"{key} applies to the whole node", "leave --device out")
        if key == "reserve" and value not in (AUTO, *GIVEN_BACK):
            for gpu in self.leases.gpus if chosen is None else chosen:
                if options.parse_amount(value, gpu.usable) >= gpu.usable:
                    raise Refused(
                        f"reserve={value} leaves nothing of the {gpu.usable} bytes of "
                        f"device {gpu.index}",
                        "make it smaller",
                    )

    def _keep_for_all(self, key: str, value: str) -> None:
        for device, known in list(self.values):
            if known == key and device != ALL:
                self._store(device, key, None)
        self._store(ALL, key, None if value in GIVEN_BACK else value)

    def _keep(self, chosen: Iterable[Gpu], key: str, value: str) -> None:
        for gpu in chosen:
            # That the setting of all has been given back must be stored too.
            given_back = value in GIVEN_BACK and (ALL, key) not in self.values
            self._store(gpu.uuid, key, None if given_back else value)

    def _store(self, device: str, key: str, value: str | None) -> None:
        if value is None:
            self.values.pop((device, key), None)
        else:
            self.values[device, key] = value
        self.store.put_setting(device, key, value)

    def _apply(self, key: str, gpus: list[Gpu], *, at_start: bool = False) -> None:
        """Give a setting of devices to the leases."""
        for gpu in list(gpus):
            text = self.of(gpu.uuid, key)
            if text is None and at_start:
                continue
            value = parse(key, text) if text is not None else None
            if key == "reserve":
                self.applied(gpu)  # where the configuration has changed meanwhile it may not fit
                self.leases.gpus.set_reserve(gpu.uuid, self._reserve(gpu, text))
            elif key == "lock":
                assert value is None or isinstance(value, str)
                self.leases.run(LockSet(gpu.uuid, value))
            elif key == "quantum":
                assert value is None or isinstance(value, int)
                self.leases.run(QuantumSet(gpu.uuid, value))
            else:
                self.leases.run(DrainSet(gpu.uuid, bool(value)))

    def applied(self, gpu: Gpu) -> Gpu:
        """A device of a configuration with the settings. Refused: they contradict each other."""
        text = self.of(gpu.uuid, "reserve")
        if text is None:
            return gpu
        reserve = self._reserve(gpu, text)
        if reserve is not None and reserve >= gpu.usable:
            raise Refused(
                f"reserve={text}, as set, leaves nothing of the {gpu.usable} bytes of device "
                f"{gpu.index}",
                "run gpu-leasectl set reserve=config first, or leave the device more memory",
            )
        return replace(gpu, reserve=reserve)

    def _reserve(self, gpu: Gpu, text: str | None) -> int | None:
        """Bytes to keep of a device for contexts; None: as measured."""
        text = text or self.config().for_device(gpu.index, gpu.uuid).reserve
        return None if text == AUTO else options.parse_amount(text, gpu.usable)

    def listed(self) -> list[answers.Setting]:
        """All that is set, for status: device (UUID or all), key, value."""
        return [
            {"device": "all" if device == ALL else device, "key": key, "value": value}
            for (device, key), value in sorted(self.values.items())
        ]

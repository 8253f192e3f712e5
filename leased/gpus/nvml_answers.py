"""Checks the answers of NVML, which may say anything about a GPU that is breaking.

A device for which an answer is impossible has a fault, in a sentence; other devices are not
affected.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from leased.base.requests import shown
from leased.gpus.silence import SILENT
from leased.memory.speed import Speed

PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
MOST_MINOR = 4096
MOST_MEMORY = 1 << 50
MOST_PID = 1 << 31
MOST_NAME = 96
MOST_ENERGY = 1 << 62
MOST_CLOCK = 100_000  # MHz
MOST_XID, MOST_XIDS = 10_000, 64  # the highest number; in an answer
MOST_WORK = 1 << 20  # percents of samples: there are at most some hundreds
OF_NONE = "NVML answers for no GPU"


class Unsound(Exception):
    """An answer of NVML is impossible; the text says which."""


@dataclass(frozen=True)
class Described:
    """A device. number: NVML's, in the order of PCI addresses; minor: of its device file. pci: its
    PCI address as the kernel writes it; "": not known."""

    number: int
    uuid: str
    name: str
    minor: int
    memory: int  # bytes that processes can have
    lanes: Speed = field(default_factory=Speed)
    mode: str | None = None  # why it cannot be shared now
    pci: str = ""


@dataclass(frozen=True)
class Seen:
    """A device now. processes: bytes by pid, without managed memory. energy_mj: since the driver
    was loaded. work: by pid, how much of the device's work was whose since the look before, in
    percents of samples; empty: NVML does not say, or nobody worked. clock: of the SMs, as a part of
    the highest. lost_bits: errors of its memory that could not be corrected, since the driver was
    loaded; lost_rows: bad rows of it could not be replaced. xids: errors that the driver has told
    of since the look before. None: NVML does not say."""

    processes: Mapping[int, int]
    busy: int | None = None  # percent
    mode: str | None = None
    energy_mj: int | None = None
    work: Mapping[int, int] = field(default_factory=dict)
    clock: float | None = None
    lost_bits: int | None = None
    lost_rows: bool = False
    xids: tuple[int, ...] = ()


def _number(said: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = said.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Unsound(f"NVML says that its {name} is {shown(value)}")
    return value


def _answered(said: Any) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        raise Unsound("NVML says nothing of it")
    fault = said.get("fault")
    if fault == SILENT:
        raise Unsound(SILENT)
    if fault is not None:
        raise Unsound(f"NVML says: {printable(str(fault))}")
    return said


def printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:MOST_NAME]


def _mode(said: Mapping[str, Any], uuid: str) -> str | None:
    if said.get("mig"):
        return f"it is split by MIG, which cannot be leased; run nvidia-smi -i {uuid} -mig 0"
    if said.get("exclusive"):
        return (
            f"it lets only one process in (its compute mode); run nvidia-smi -i {uuid} -c DEFAULT"
        )
    return None


def described(number: int, said: Any) -> Described:
    """A device of an answer to describe. Unsound: why it cannot be used."""
    said = _answered(said)
    uuid = said.get("uuid")
    if not isinstance(uuid, str) or not UUID.fullmatch(uuid):
        raise Unsound(f"NVML says that its UUID is {shown(uuid)}")
    lanes = [said.get(name) for name in ("generation", "lanes")]
    known = all(isinstance(value, int) and 0 < value <= 64 for value in lanes)
    return Described(
        number,
        uuid,
        printable(str(said.get("name"))),
        _number(said, "minor", 0, MOST_MINOR),
        _number(said, "memory", 1 << 20, MOST_MEMORY),
        Speed.of_lanes(*lanes) if known else Speed(),
        _mode(said, uuid),
        _pci(said.get("pci")),
    )


def _pci(said: Any) -> str:
    """00000000:3B:00.0 as the kernel writes it, 0000:3b:00.0."""
    found = PCI.fullmatch(said.lower()) if isinstance(said, str) else None
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def each_described(answer: Mapping[str, Any]) -> tuple[list[Described], dict[int, str]]:
    """The devices that can be used, and by NVML's number what is wrong with the others."""
    found: list[Described] = []
    faults: dict[int, str] = {}
    listed = answer.get("devices")
    for number, said in enumerate(listed if isinstance(listed, list) else []):
        try:
            made = described(number, said)
            for other in found:
                if made.uuid == other.uuid or made.minor == other.minor:
                    raise Unsound(f"NVML says that it is the same as GPU {other.number} of NVML")
            found.append(made)
        except Unsound as fault:
            faults[number] = str(fault)
    return found, faults


def seen(
    answer: Mapping[str, Any], uuid: str, memory: int, ours: Container[int] = frozenset()
) -> Seen:
    """A device of an answer to look. memory: all that it has. ours: processes that do not count.
    Unsound: what is wrong with it."""
    devices = answer.get("devices")
    said = _answered(devices.get(uuid) if isinstance(devices, dict) else None)
    # More than the device has is garbage too, but who is there is worth knowing.
    processes = {
        pid: min(size, memory) for pid, size in _by_pid(said.get("processes")) if pid not in ours
    }
    work = {pid: min(size, MOST_WORK) for pid, size in _by_pid(said.get("work"))}
    busy = said.get("busy")
    percent = busy if isinstance(busy, int) and 0 <= busy <= 100 else None
    energy = said.get("energy")
    sound = isinstance(energy, int) and not isinstance(energy, bool) and 0 <= energy < MOST_ENERGY
    lost = said.get("lost_bits")
    return Seen(
        *(processes, percent, _mode(said, uuid), energy if sound else None, work),
        clock=_clock(said.get("clock")),
        lost_bits=lost if type(lost) is int and 0 <= lost < MOST_ENERGY else None,
        lost_rows=said.get("lost_rows") is True,
        xids=_xids(said.get("xids")),
    )


def _xids(said: Any) -> tuple[int, ...]:
    listed = said if isinstance(said, list) else []
    return tuple(one for one in listed if type(one) is int and 0 < one < MOST_XID)[:MOST_XIDS]


def _clock(said: Any) -> float | None:
    """Of [now, highest], in MHz."""
    if not isinstance(said, list) or [type(one) for one in said] != [int, int]:
        return None
    now, most = said
    return min(1.0, now / most) if now >= 0 and 0 < most < MOST_CLOCK else None


def _by_pid(listed: Any) -> Iterator[tuple[int, int]]:
    """Pairs of a process and an amount. Unsound: it is no list of such."""
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, list) or [type(value) for value in entry] != [int, int]:
            raise Unsound(f"NVML lists a process as {shown(entry)}")
        pid, amount = entry
        if 0 < pid < MOST_PID and amount >= 0:  # else nobody of this machine
            yield pid, amount

"""What a client, a process with the interposer, says to the daemon: the messages as plain data.

Their fields are explained beside the C structs in shim/base/wire.h; leased/wire/parser.py makes
them from bytes. Devices are named by their UUIDs, as NVML writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leased.wire.device_bytes import DeviceBytes

# The fields of gl_details: reasons why memory is fixed.
FIXED = ("shared", "unhosted", "mapped", "other")


@dataclass(frozen=True)
class Hello:
    held_epoch: int
    wants: bool
    memory: dict[str, DeviceBytes]


@dataclass(frozen=True)
class Memory:
    """By device UUID."""

    memory: dict[str, DeviceBytes]


@dataclass(frozen=True)
class Request:
    pass


@dataclass(frozen=True)
class Released:
    epoch: int
    idle: bool
    drain_ns: int
    prefetch_bytes: int
    prefetch_ns: int
    wants: bool = False


@dataclass(frozen=True)
class Stuck:
    epoch: int


@dataclass(frozen=True)
class Progress:
    calls: int


@dataclass(frozen=True)
class Restored:
    epoch: int
    bytes: int
    ns: int


@dataclass(frozen=True)
class Why:
    pass


@dataclass(frozen=True)
class Name:
    name: bytes


@dataclass(frozen=True)
class Meet:
    """number: the asker's own, for the answer. what: a word between the two."""

    name: bytes
    number: int
    what: tuple[int, int]


@dataclass(frozen=True)
class HostTake:
    """So many bytes of host memory for copies, under a number of the asker's own."""

    number: int
    bytes: int


@dataclass(frozen=True)
class HostGive:
    number: int


@dataclass(frozen=True)
class Suspends:
    pass


@dataclass(frozen=True)
class Claim:
    """Of one device, by UUID. bytes: what the process would like to have there, least: must."""

    number: int
    uuid: str
    bytes: int
    least: int


@dataclass(frozen=True)
class Details:
    """Of one device, by UUID. left: bytes that left it without being copied, since the last one.
    clean: enum gl_clean. fixed: bytes that stay, by reason (FIXED)."""

    uuid: str
    left: int
    clean: int
    fixed: Mapping[str, int]


@dataclass(frozen=True)
class Unknown:
    """Of a type that only later releases know: it is ignored."""


Message = (
    Hello
    | Memory
    | Request
    | Released
    | Stuck
    | Progress
    | Restored
    | Why
    | Name
    | Meet
    | HostTake
    | HostGive
    | Suspends
    | Claim
    | Details
    | Unknown
)

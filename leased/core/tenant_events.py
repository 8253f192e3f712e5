"""Events of one tenant: what it asks for, gives back and has. Times in ns, memory in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Opened:
    """A tenant exists. gang: device UUIDs; lock: on, off or auto.

    swaps: all its memory must be on the device while it works (memory:swap), so
    it never runs beside others that leave no room: off means auto for it.
    """

    tenant: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int
    swaps: bool = False


@dataclass(frozen=True)
class Widened:
    """The tenant needs these devices from now on, which are more than before."""

    tenant: int
    gang: tuple[str, ...]


@dataclass(frozen=True)
class Closed:
    """A tenant is over; whatever it held is free."""

    tenant: int


@dataclass(frozen=True)
class Requested:
    """A process of the tenant waits at its gate."""

    tenant: int


@dataclass(frozen=True)
class Frozen:
    """The tenant cannot act: its processes are stopped, or their cgroup is frozen, and as far
    as is known no work of it is under way."""

    tenant: int


@dataclass(frozen=True)
class Thawed:
    """The tenant can act again."""

    tenant: int


@dataclass(frozen=True)
class Parked:
    """The tenant gives up its lease and all its memory, whether or not somebody needs them.

    by: who wanted that. suspended: it asks for nothing before it is Unparked, as its processes
    are about to be stopped; otherwise its next request ends the parking.
    """

    tenant: int
    by: str
    suspended: bool = False


@dataclass(frozen=True)
class Unparked:
    """The tenant may have its lease and its memory back."""

    tenant: int


@dataclass(frozen=True)
class Restored:
    """Of one that swaps: all its memory is back, and it works. Its quantum begins now."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class Released:
    """Every process of the tenant has closed its gate and drained."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class MemoryChanged:
    """The tenant now has so many bytes on the device; fixed: more of them, which cannot move.

    resident: of one that swaps, how many of `bytes` are there now; None: managed memory.
    """

    tenant: int
    device: str
    bytes: int
    fixed: int = 0
    resident: int | None = None


@dataclass(frozen=True)
class LeftUncopied:
    """So many bytes of the tenant left the device without being copied: they had not changed."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class SpeedMeasured:
    """So many bytes of the tenant came to the device in so many ns."""

    tenant: int
    device: str
    bytes: int
    ns: int


@dataclass(frozen=True)
class UsageRestored:
    """After a restart: what the tenant had of the device before, by the names in Usage."""

    tenant: int
    device: str
    amounts: Mapping[str, int]


@dataclass(frozen=True)
class PolicyRestored:
    """After a restart: what the policy of this name remembered of the tenant."""

    tenant: int
    policy: str
    state: str


@dataclass(frozen=True)
class StraySeen:
    """A process of the tenant has used the device without a lease."""

    tenant: int
    device: str


@dataclass(frozen=True)
class Adopted:
    """After a restart: a process says that it holds this lease."""

    tenant: int
    epoch: int

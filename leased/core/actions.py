"""What the arbiter wants done. Times are ns of one monotonic clock, memory is in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional, Union


@dataclass(frozen=True)
class Grant:
    """The tenant has a lease on its gang.

    prefetch: by UUID, bytes to restore now. idle_ns: another job waits already, so release after so
    much idleness; None: no job waits.
    """

    tenant: int
    epoch: int
    shared: bool
    quantum_ns: int
    prefetch: Mapping[str, int]
    idle_ns: Optional[int] = None


@dataclass(frozen=True)
class Restore:
    """The tenant keeps its lease and may restore memory that others have displaced meanwhile."""

    tenant: int
    epoch: int
    quantum_ns: int
    prefetch: Mapping[str, int]


@dataclass(frozen=True)
class Evict:
    """The tenant, which swaps, must evict so many bytes from the device."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Leave:
    """The tenant must evict all its memory from its devices, even if no other needs the room."""

    tenant: int


@dataclass(frozen=True)
class Preload:
    """The tenant, which swaps and waits, may restore so many bytes to the device already."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Expect:
    """The tenant, which swaps and holds, may have to evict so many bytes from the device soon."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Contend:
    """Another job waits: release after idle_ns of idleness; None: no job waits any more."""

    tenant: int
    epoch: int
    idle_ns: Optional[int]


@dataclass(frozen=True)
class Revoke:
    """The holder must shut its gate, drain, and release within drain_ns."""

    tenant: int
    epoch: int
    drain_ns: int


@dataclass(frozen=True)
class Overrun:
    """A revoked holder has not released within its drain limit."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class Forfeit:
    """The holder has not released within twice that: others get its devices beside its work."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class PassedOver:
    """A holder that cannot act has lost its devices to others.

    It has been told to release its lease. When it does, others have had the devices since.
    """

    tenant: int
    epoch: int


@dataclass(frozen=True)
class Answer:
    """To whom orders the tenant's leases: what has come of an order. See leased/core/orders.py."""

    tenant: int
    answer: str


Action = Union[
    Grant,
    Restore,
    Evict,
    Leave,
    Preload,
    Expect,
    Contend,
    Revoke,
    Overrun,
    Forfeit,
    PassedOver,
    Answer,
]

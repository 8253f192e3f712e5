"""What the arbiter wants done. Times are ns of one monotonic clock, memory is in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Grant:
    """The tenant has its gang. prefetch: bytes to bring in now, by device.

    idle_ns: somebody waits already: yield after so much idleness; None: nobody does.
    """

    tenant: int
    epoch: int
    shared: bool
    quantum_ns: int
    prefetch: Mapping[str, int]
    idle_ns: int | None = None


@dataclass(frozen=True)
class Restore:
    """The tenant goes on with its lease, and may bring back what others displaced meanwhile."""

    tenant: int
    epoch: int
    quantum_ns: int
    prefetch: Mapping[str, int]


@dataclass(frozen=True)
class Evict:
    """The tenant, which swaps, must give up so many bytes of the device."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Leave:
    """All that the tenant has on its devices must leave them, for nobody in particular."""

    tenant: int


@dataclass(frozen=True)
class Preload:
    """The tenant, which swaps and waits, may bring so many bytes of the device in beforehand."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Expect:
    """The tenant, which swaps and holds, may have to give up so many bytes of the device soon."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class Contend:
    """Somebody waits for the holder: yield after idle_ns of idleness; None: nobody any more."""

    tenant: int
    epoch: int
    idle_ns: int | None


@dataclass(frozen=True)
class Revoke:
    """The holder must close its gate, drain within drain_ns, and release."""

    tenant: int
    epoch: int
    drain_ns: int


@dataclass(frozen=True)
class Overrun:
    """A revoked holder has not released in time."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class Forfeit:
    """It has not for as long again: its devices go to others beside what still runs of it."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class PassedOver:
    """A holder that cannot act has lost its devices to others. It has been told to release its
    lease; when it does so it has been another one's for long."""

    tenant: int
    epoch: int


Action = (
    Grant
    | Restore
    | Evict
    | Leave
    | Preload
    | Expect
    | Contend
    | Revoke
    | Overrun
    | Forfeit
    | PassedOver
)

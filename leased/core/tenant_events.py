"""Events of one tenant: what it asks for, gives back and has. Times in ns, memory in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional, Union


@dataclass(frozen=True)
class Opened:
    """A tenant has been opened. gang: UUIDs of its devices. lock: on, off or auto.

    swaps: its memory is swapped (memory:swap). All of it must be resident while the tenant holds a
    lease, so it never runs beside tenants that leave no room: lock off means auto for it.

    request, limit: the parts of its devices' time that it is to have at least and may have at most.
    job: as squeue shows it, for whoever reads a record; it decides nothing.
    job_class: online, offline or none; see leased/core/classes.py.
    ordered: others order when it has a lease; see leased/core/orders.py.
    chain: what it is a part of, see leased/core/chains.py; "": of none.
    """

    tenant: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int
    swaps: bool = False
    request: float = 0.0
    limit: float = 1.0
    job: str = ""
    job_class: str = "none"
    ordered: bool = False
    chain: str = ""


@dataclass(frozen=True)
class Widened:
    """The gang of the tenant is larger from now on: all these devices."""

    tenant: int
    gang: tuple[str, ...]


@dataclass(frozen=True)
class Channels:
    """Whether time slices of the GPU can divide the work of the tenant's processes, of all that
    have any, from that of others. Until this is said they cannot."""

    tenant: int
    controlled: bool


@dataclass(frozen=True)
class Closed:
    """The tenant has been closed: its lease and its memory are free."""

    tenant: int


@dataclass(frozen=True)
class Requested:
    """A process of the tenant waits at its gate."""

    tenant: int


@dataclass(frozen=True)
class Frozen:
    """The tenant cannot act: its processes are stopped, or their cgroup is frozen.

    As far as is known, no work of it is in flight.
    """

    tenant: int


@dataclass(frozen=True)
class Thawed:
    """The tenant can act again."""

    tenant: int


@dataclass(frozen=True)
class Parked:
    """The tenant must release its lease and evict all its memory, even if no other needs them.

    by: who has parked it. suspended: its processes are about to be stopped, so it requests nothing
    before it is Unparked; otherwise its next request ends the parking.
    """

    tenant: int
    by: str
    suspended: bool = False


@dataclass(frozen=True)
class Unparked:
    """The tenant is no longer parked: it may request a lease and restore its memory."""

    tenant: int


@dataclass(frozen=True)
class Signalled:
    """A process of the tenant has handled a signal while it waited, or its time limit is near. If
    the tenant waits it gets a short turn soon."""

    tenant: int


@dataclass(frozen=True)
class Restored:
    """A tenant that swaps has restored all its memory: its quantum begins now."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class Released:
    """Every process of the tenant has shut its gate, and all its work has finished."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class MemoryChanged:
    """The tenant now has so much memory of the device, in bytes.

    bytes: what can be evicted. fixed: what cannot, beside that. resident: of a tenant that swaps,
    how many of `bytes` are on the device now; None: its memory is managed.
    """

    tenant: int
    device: str
    bytes: int
    fixed: int = 0
    resident: Optional[int] = None


@dataclass(frozen=True)
class LeftUncopied:
    """The tenant has evicted so many bytes without copying them: they had not changed."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class SpeedMeasured:
    """The tenant has restored so many bytes to the device in so many ns."""

    tenant: int
    device: str
    bytes: int
    ns: int


@dataclass(frozen=True)
class UsageRestored:
    """After a restart: the tenant's usage of the device before it, by the names in Usage."""

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
class Ordered:
    """What is to become of a tenant whose leases others order; see leased/core/orders.py."""

    tenant: int
    order: str


@dataclass(frozen=True)
class Adopted:
    """After a restart: a process of the tenant says that it holds this lease."""

    tenant: int
    epoch: int


# What may happen to a tenant that has been opened.
OfTenant = Union[
    Widened,
    Channels,
    Closed,
    Requested,
    Frozen,
    Thawed,
    Parked,
    Unparked,
    Signalled,
    Restored,
    Released,
    MemoryChanged,
    SpeedMeasured,
    LeftUncopied,
    UsageRestored,
    PolicyRestored,
    StraySeen,
    Adopted,
    Ordered,
]

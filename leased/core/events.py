"""What happens to the arbiter. Times are ns of one monotonic clock, memory is in bytes.

Arbiter.handle() is the one way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from leased.usage.gauge import WorkPart


class Event:
    """What Arbiter.handle() takes."""


# -- of one tenant ----------------------------------------------------------------------


@dataclass(frozen=True)
class Opened(Event):
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
class OfTenant(Event):
    """Happens to a tenant that has been opened; nothing happens where it is closed by now."""

    tenant: int


@dataclass(frozen=True)
class Widened(OfTenant):
    """The gang of the tenant is larger from now on: all these devices."""

    gang: tuple[str, ...]


@dataclass(frozen=True)
class Channels(OfTenant):
    """Whether time slices of the GPU can divide the work of the tenant's processes, of all that
    have any, from that of others. Until this is said they cannot."""

    controlled: bool


@dataclass(frozen=True)
class Closed(OfTenant):
    """The tenant has been closed: its lease and its memory are free."""


@dataclass(frozen=True)
class Requested(OfTenant):
    """A process of the tenant waits at its gate."""


@dataclass(frozen=True)
class Frozen(OfTenant):
    """The tenant cannot act: its processes are stopped, or their cgroup is frozen.

    As far as is known, no work of it is in flight.
    """


@dataclass(frozen=True)
class Thawed(OfTenant):
    """The tenant can act again."""


@dataclass(frozen=True)
class Parked(OfTenant):
    """The tenant must release its lease and evict all its memory, even if no other needs them.

    by: who has parked it. suspended: its processes are about to be stopped, so it requests nothing
    before it is Unparked; otherwise its next request ends the parking.
    """

    by: str
    suspended: bool = False


@dataclass(frozen=True)
class Unparked(OfTenant):
    """The tenant is no longer parked: it may request a lease and restore its memory."""


@dataclass(frozen=True)
class Signalled(OfTenant):
    """A process of the tenant has handled a signal while it waited, or its time limit is near. If
    the tenant waits it gets a short turn soon."""


@dataclass(frozen=True)
class Restored(OfTenant):
    """A tenant that swaps has restored all its memory: its quantum begins now."""

    epoch: int


@dataclass(frozen=True)
class Released(OfTenant):
    """Every process of the tenant has shut its gate, and all its work has finished."""

    epoch: int


@dataclass(frozen=True)
class MemoryChanged(OfTenant):
    """The tenant now has so much memory of the device, in bytes.

    bytes: what can be evicted. fixed: what cannot, beside that. resident: of a tenant that swaps,
    how many of `bytes` are on the device now; None: its memory is managed.
    """

    device: str
    bytes: int
    fixed: int = 0
    resident: Optional[int] = None


@dataclass(frozen=True)
class LeftUncopied(OfTenant):
    """The tenant has evicted so many bytes without copying them: they had not changed."""

    device: str
    bytes: int


@dataclass(frozen=True)
class SpeedMeasured(OfTenant):
    """The tenant has restored so many bytes to the device in so many ns."""

    device: str
    bytes: int
    ns: int


@dataclass(frozen=True)
class UsageRestored(OfTenant):
    """After a restart: the tenant's usage of the device before it, by the names in Usage."""

    device: str
    amounts: Mapping[str, int]


@dataclass(frozen=True)
class PolicyRestored(OfTenant):
    """After a restart: what the policy of this name remembered of the tenant."""

    policy: str
    state: str


@dataclass(frozen=True)
class StraySeen(OfTenant):
    """A process of the tenant has used the device without a lease."""

    device: str


@dataclass(frozen=True)
class Ordered(OfTenant):
    """What is to become of a tenant whose leases others order; see leased/core/orders.py."""

    order: str


@dataclass(frozen=True)
class Adopted(OfTenant):
    """After a restart: a process of the tenant says that it holds this lease."""

    epoch: int


# -- of one device ----------------------------------------------------------------------


@dataclass(frozen=True)
class OfDevice(Event):
    """Happens to one device: what was measured of it, and what the site sets."""

    device: str


@dataclass(frozen=True)
class RoomChanged(OfDevice):
    """All tenants together can have so many bytes: what the driver itself takes has changed."""

    bytes: int


@dataclass(frozen=True)
class SpeedKnown(OfDevice):
    """The site or the driver says how fast memory moves between the device and the host.

    swaps: the speed of swapped memory; False: of managed memory. bytes_s, seen, said: see Speed.
    """

    swaps: bool
    bytes_s: float
    seen: int = 0
    said: bool = False


@dataclass(frozen=True)
class WorkMeasured(OfDevice):
    """What the driver says of the last `ns` of the device; None: it does not say.

    busy_percent: the part of that time in which the device had work. energy_mj: mJ that it took.
    parts: how the work was divided among tenants; empty: the driver does not say, or nobody worked.
    """

    ns: int
    busy_percent: Optional[int]
    energy_mj: Optional[int]
    parts: tuple[WorkPart, ...] = ()


@dataclass(frozen=True)
class LockSet(OfDevice):
    """The site forces a lock mode on a device; None: what each tenant asked for."""

    lock: Optional[str]


@dataclass(frozen=True)
class QuantumSet(OfDevice):
    """The site forces a quantum on a device; None: what each tenant asked for."""

    quantum_ns: Optional[int]


@dataclass(frozen=True)
class PolicySet(OfDevice):
    """The policy of that name says from now on who is next on the device. A gang of several
    devices has the policy of its first one."""

    policy: str


@dataclass(frozen=True)
class DrainSet(OfDevice):
    """A drained device gets no new lease; its holders are revoked at the end of their quantum."""

    drained: bool


# -- of the node ------------------------------------------------------------------------


@dataclass(frozen=True)
class Listens(Event):
    """After a restart: only from now on can processes of the previous daemon say what they hold, so
    nothing is granted for another grace_ns."""

    grace_ns: int


@dataclass(frozen=True)
class CameBack(Event):
    """After a restart: a process that had a lease or memory under the previous daemon has connected
    again, so others may still be about to."""


@dataclass(frozen=True)
class Rejoined(Event):
    """After a restart: all clients of the previous daemon have said what they hold."""


@dataclass(frozen=True)
class DrainLimitSet(Event):
    """A holder that is revoked from now on must have released its lease within drain_ns."""

    drain_ns: int


@dataclass(frozen=True)
class Tick(Event):
    """Only time has passed. After a restart: what had come by then has been heard, so the grace may
    end; at another event who holds a lease may still wait to be heard."""

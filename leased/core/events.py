"""What happens to the arbiter and what it wants done. Times are ns of one monotonic clock."""

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
class RoomChanged:
    """Tenants' allocations can have so many bytes of the device together: the driver took some."""

    device: str
    bytes: int


@dataclass(frozen=True)
class SpeedKnown:
    """The site or the driver says how fast memory moves between the device and the host.

    swaps: memory that tenants swap themselves, or else managed memory; the rest: see Speed.
    """

    device: str
    swaps: bool
    bytes_s: float
    seen: int = 0
    said: bool = False


@dataclass(frozen=True)
class SpeedMeasured:
    """So many bytes of the tenant came to the device in so many ns."""

    tenant: int
    device: str
    bytes: int
    ns: int


@dataclass(frozen=True)
class LeftUncopied:
    """So many bytes of the tenant left the device without being copied: they had not changed."""

    tenant: int
    device: str
    bytes: int


@dataclass(frozen=True)
class WorkMeasured:
    """What the driver says of the last `ns` of the device: in how many percent of it work was
    under way, and how many mJ it took. None: it does not say."""

    device: str
    ns: int
    busy_percent: int | None
    energy_mj: int | None


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


@dataclass(frozen=True)
class Rejoined:
    """After a restart: all who were connected before have said what they hold."""


@dataclass(frozen=True)
class LockSet:
    """The site forces a lock mode on a device; None: what each tenant asked for."""

    device: str
    lock: str | None


@dataclass(frozen=True)
class QuantumSet:
    """The site forces a quantum on a device; None: what each tenant asked for."""

    device: str
    quantum_ns: int | None


@dataclass(frozen=True)
class PolicySet:
    """The policy of that name says from now on who is next on the device. A gang of several
    devices has the policy of its first one."""

    device: str
    policy: str


@dataclass(frozen=True)
class DrainSet:
    """No new lease on a drained device; its holders go at the end of their quantum."""

    device: str
    drained: bool


@dataclass(frozen=True)
class ModeSet:
    """How tenants with lock auto use the device while their memory fits, and why.

    quantum_ns: how long their turns are while nothing has to move; None: as they asked.
    """

    device: str
    exclusive: bool
    why: str
    quantum_ns: int | None = None


@dataclass(frozen=True)
class DrainLimitSet:
    """A holder that is revoked from now on must have released its lease within drain_ns."""

    drain_ns: int


@dataclass(frozen=True)
class Tick:
    """Only time has passed."""


Event = (
    Opened
    | Widened
    | Closed
    | Requested
    | Frozen
    | Thawed
    | Parked
    | Unparked
    | Restored
    | Released
    | MemoryChanged
    | RoomChanged
    | SpeedKnown
    | SpeedMeasured
    | LeftUncopied
    | WorkMeasured
    | UsageRestored
    | PolicyRestored
    | StraySeen
    | Adopted
    | Rejoined
    | LockSet
    | QuantumSet
    | PolicySet
    | DrainSet
    | ModeSet
    | DrainLimitSet
    | Tick
)


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

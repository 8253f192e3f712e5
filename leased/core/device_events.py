"""Events of one device: what was measured of it, and what the site sets. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass


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
class WorkMeasured:
    """What the driver says of the last `ns` of the device: in how many percent of it work was
    under way, and how many mJ it took. None: it does not say."""

    device: str
    ns: int
    busy_percent: int | None
    energy_mj: int | None


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

"""Events of one device: what was measured of it, and what the site sets. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from leased.usage.gauge import WorkPart


@dataclass(frozen=True)
class RoomChanged:
    """All tenants together can have so many bytes: what the driver itself takes has changed."""

    device: str
    bytes: int


@dataclass(frozen=True)
class SpeedKnown:
    """The site or the driver says how fast memory moves between the device and the host.

    swaps: the speed of swapped memory; False: of managed memory. bytes_s, seen, said: see Speed.
    """

    device: str
    swaps: bool
    bytes_s: float
    seen: int = 0
    said: bool = False


@dataclass(frozen=True)
class WorkMeasured:
    """What the driver says of the last `ns` of the device; None: it does not say.

    busy_percent: the part of that time in which the device had work. energy_mj: mJ that it took.
    parts: how the work was divided among tenants; empty: the driver does not say, or nobody worked.
    """

    device: str
    ns: int
    busy_percent: Optional[int]
    energy_mj: Optional[int]
    parts: tuple[WorkPart, ...] = ()


@dataclass(frozen=True)
class LockSet:
    """The site forces a lock mode on a device; None: what each tenant asked for."""

    device: str
    lock: Optional[str]


@dataclass(frozen=True)
class QuantumSet:
    """The site forces a quantum on a device; None: what each tenant asked for."""

    device: str
    quantum_ns: Optional[int]


@dataclass(frozen=True)
class PolicySet:
    """The policy of that name says from now on who is next on the device. A gang of several
    devices has the policy of its first one."""

    device: str
    policy: str


@dataclass(frozen=True)
class DrainSet:
    """A drained device gets no new lease; its holders are revoked at the end of their quantum."""

    device: str
    drained: bool


# What DeviceSettings applies.
OfDevice = Union[LockSet, QuantumSet, PolicySet, DrainSet, RoomChanged, SpeedKnown]

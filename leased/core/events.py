"""What happens to the arbiter: the events of the whole node, and the union of all events.

Times are ns of one monotonic clock. Arbiter.handle() is the one way in.
"""

from __future__ import annotations

from dataclasses import dataclass

from leased.core.device_events import (
    DrainSet,
    LockSet,
    ModeSet,
    PolicySet,
    QuantumSet,
    RoomChanged,
    SpeedKnown,
    WorkMeasured,
)
from leased.core.tenant_events import (
    Adopted,
    Closed,
    Frozen,
    LeftUncopied,
    MemoryChanged,
    Opened,
    Parked,
    PolicyRestored,
    Released,
    Requested,
    Restored,
    SpeedMeasured,
    StraySeen,
    Thawed,
    Unparked,
    UsageRestored,
    Widened,
)


@dataclass(frozen=True)
class Rejoined:
    """After a restart: all clients of the daemon before have said what they hold."""


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

"""What happens to the arbiter: the events of the whole node, and the union of all events.

Times are ns of one monotonic clock. Arbiter.handle() is the one way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from leased.core.device_events import OfDevice, WorkMeasured
from leased.core.tenant_events import OfTenant, Opened


@dataclass(frozen=True)
class Listens:
    """After a restart: only from now on can processes of the previous daemon say what they hold, so
    nothing is granted for another grace_ns."""

    grace_ns: int


@dataclass(frozen=True)
class CameBack:
    """After a restart: a process that had a lease or memory under the previous daemon has connected
    again, so others may still be about to."""


@dataclass(frozen=True)
class Rejoined:
    """After a restart: all clients of the previous daemon have said what they hold."""


@dataclass(frozen=True)
class DrainLimitSet:
    """A holder that is revoked from now on must have released its lease within drain_ns."""

    drain_ns: int


@dataclass(frozen=True)
class Tick:
    """Only time has passed. After a restart: what had come by then has been heard, so the grace may
    end; at another event who holds a lease may still wait to be heard."""


OfGrace = Union[Listens, CameBack, Rejoined]

Event = Union[Opened, OfTenant, OfDevice, WorkMeasured, OfGrace, DrainLimitSet, Tick]

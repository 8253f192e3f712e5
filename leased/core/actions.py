"""What the arbiter wants done, and how that is gathered from all its parts. Times are ns of one
monotonic clock, memory is in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Action:
    """What is to be done about one tenant."""

    tenant: int


@dataclass(frozen=True)
class OfLease(Action):
    """About its lease of that number."""

    epoch: int


@dataclass(frozen=True)
class Grant(OfLease):
    """The tenant has a lease on its gang.

    prefetch: by UUID, bytes to restore now. idle_ns: another job waits already, so release after so
    much idleness; None: no job waits.
    """

    shared: bool
    prefetch: Mapping[str, int]
    idle_ns: Optional[int] = None


@dataclass(frozen=True)
class Restore(OfLease):
    """The tenant keeps its lease and may restore memory that others have displaced meanwhile."""

    prefetch: Mapping[str, int]


@dataclass(frozen=True)
class Evict(Action):
    """The tenant, which swaps, must evict so many bytes from the device."""

    device: str
    bytes: int


@dataclass(frozen=True)
class Leave(Action):
    """The tenant must evict all its memory from its devices, even if no other needs the room."""


@dataclass(frozen=True)
class Preload(Action):
    """The tenant, which swaps and waits, may restore so many bytes to the device already."""

    device: str
    bytes: int


@dataclass(frozen=True)
class Expect(Action):
    """The tenant, which swaps and holds, may have to evict so many bytes from the device soon."""

    device: str
    bytes: int


@dataclass(frozen=True)
class Contend(OfLease):
    """Another job waits: release after idle_ns of idleness; None: no job waits any more."""

    idle_ns: Optional[int]


@dataclass(frozen=True)
class Revoke(OfLease):
    """The holder must shut its gate, drain, and release within drain_ns."""

    drain_ns: int


@dataclass(frozen=True)
class Overrun(OfLease):
    """A revoked holder has not released within its drain limit."""


@dataclass(frozen=True)
class Forfeit(OfLease):
    """The holder has not released within twice that: others get its devices beside its work."""


@dataclass(frozen=True)
class PassedOver(OfLease):
    """A holder that cannot act has lost its devices to others.

    It has been told to release its lease. When it does, others have had the devices since.
    """


@dataclass(frozen=True)
class Answer(Action):
    """To whom orders the tenant's leases: what has come of an order. See leased/core/orders.py."""

    answer: str


class Effects:
    """What one event changes, and the actions that follow.

    changed: the devices to decide about, as bits. unsettled: devices are used in another way, so
    holders may have to be separated. moved: devices, as bits, where memory is elsewhere than when
    their holders were last told, so a handoff may cost less. A device is stirred where memory may
    have to move now."""

    def __init__(self) -> None:
        self.changed = 0
        self.unsettled = False
        self.moved = 0
        self.actions: list[Action] = []
        self.granted: dict[int, int] = {}  # by tenant: its Grant's place in actions
        self.stirred: dict[str, None] = {}

    def stir(self, *uuids: str) -> None:
        self.stirred.update(dict.fromkeys(uuids))

    def take_stirred(self) -> Iterable[str]:
        """Devices that were stirred since this was last asked, in that order."""
        stirred, self.stirred = self.stirred, {}
        return stirred

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def grant(self, grant: Grant) -> None:
        self.granted[grant.tenant] = len(self.actions)
        self.actions.append(grant)

    def contend(self, contend: Contend) -> None:
        """Tell a holder that another tenant waits; if it is granted in this event, its grant
        says so."""
        place = self.granted.get(contend.tenant)
        if place is None:
            self.actions.append(contend)
            return
        grant = self.actions[place]
        assert isinstance(grant, Grant)
        self.actions[place] = Grant(
            *(grant.tenant, grant.epoch, grant.shared, grant.prefetch), idle_ns=contend.idle_ns
        )

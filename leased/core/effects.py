"""What one event changes, and the actions that follow, gathered from all parts of the arbiter."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.actions import Action, Contend, Grant


class Effects:
    """changed: the devices to decide about, as bits. unsettled: devices are used in another way, so
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
            *(grant.tenant, grant.epoch, grant.shared, grant.quantum_ns, grant.prefetch),
            idle_ns=contend.idle_ns,
        )

"""What one event changes and wants done, gathered from all that take part in it."""

from __future__ import annotations

from dataclasses import replace

from leased.core.actions import Action, Contend, Grant


class Effects:
    """changed: bits of devices to decide about. unsettled: devices are used in another way, so
    holders may have to be separated."""

    def __init__(self) -> None:
        self.changed = 0
        self.unsettled = False
        self.actions: list[Action] = []
        self.granted: dict[int, int] = {}  # by tenant: its Grant's place in actions

    def begin(self) -> None:
        self.actions, self.granted = [], {}

    def do(self, action: Action) -> None:
        if isinstance(action, Grant):
            self.granted[action.tenant] = len(self.actions)
        self.actions.append(action)

    def contend(self, contend: Contend) -> None:
        """A holder that is only now granted is told in the same breath."""
        place = self.granted.get(contend.tenant)
        if place is None:
            self.actions.append(contend)
            return
        grant = self.actions[place]
        assert isinstance(grant, Grant)
        self.actions[place] = replace(grant, idle_ns=contend.idle_ns)

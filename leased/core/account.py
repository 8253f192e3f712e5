"""What a tenant has had of its devices since its policy was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter, sub

from leased.core.division import Division
from leased.core.policy import Had
from leased.core.state import Tenant

Figure = Callable[[Division], int]
EVEN: Figure = attrgetter("even")
LEASED: Figure = attrgetter("leased")
HELD: Figure = attrgetter("held")
BESIDE: Figure = attrgetter("beside")
TOGETHER: Figure = attrgetter("together")


@dataclass(slots=True)
class Account:
    """A tenant that holds or waits, or did a moment ago. at: when it was last charged. even and
    leased, and of a holder also held, beside and together: what its devices' divisions showed at
    that time."""

    tenant: Tenant
    gang: tuple[str, ...]
    holds: bool
    at: int
    divisions: list[Division]
    even: list[int] = field(default_factory=list)
    leased: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)
    together: list[int] = field(default_factory=list)

    def had(self, divisions: list[Division]) -> Had:
        """What the tenant has had since it was charged. divisions: its devices' divisions as
        they are now."""
        even = list(map(sub, map(EVEN, divisions), self.even))
        leased = list(map(sub, map(LEASED, divisions), self.leased))
        if not self.holds:
            return Had(self.gang, [0] * len(even), even, leased)
        held = list(map(sub, map(HELD, divisions), self.held))
        together = list(map(sub, map(TOGETHER, divisions), self.together))
        if not any(together):
            return Had(self.gang, held, even, leased)
        beside = list(map(sub, map(BESIDE, divisions), self.beside))
        return Had(self.gang, held, even, leased, beside, together)

    def note(self) -> None:
        """The policy knows all that the tenant has had up to now."""
        divisions = self.divisions
        self.even, self.leased = list(map(EVEN, divisions)), list(map(LEASED, divisions))
        if self.holds:
            self._note_held()

    def _note_held(self) -> None:
        divisions = self.divisions
        self.held, self.beside = list(map(HELD, divisions)), list(map(BESIDE, divisions))
        self.together = list(map(TOGETHER, divisions))

    def enter(self) -> None:
        """Its devices' divisions count it from now on."""
        for division in self.divisions:
            division.wanting += 1
        if self.holds:
            self._hold()

    def leave(self) -> None:
        """They do not count it any more."""
        if self.holds:
            self._wait()
        for division in self.divisions:
            division.wanting -= 1

    def turn(self, holds: bool) -> None:
        """They count it as a holder from now on, or as a waiter. It has just been charged."""
        if holds != self.holds:
            self.holds = holds
            if holds:
                self._note_held()
                self._hold()
            else:
                self._wait()

    def _hold(self) -> None:
        number, tenant = self.tenant.id, self.tenant
        for division in self.divisions:
            division.holders += 1
            division.holding[number] = tenant

    def _wait(self) -> None:
        number = self.tenant.id
        for division in self.divisions:
            division.holders -= 1
            del division.holding[number]

"""The time of one device, as it is divided among those who want it. In ns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leased.core.state import Tenant


@dataclass(slots=True)
class Division:
    """The time of one device: `held` is what each holder has had of it since the start, `even`
    what each would have had that held it or waited for it, of whom there are `wanting`. Remainders
    are carried over, so the sums do not depend on how often they are brought up to date. leased:
    the time in which anybody held it; together: in which several did; beside: what each has had of
    `held` meanwhile.
    holding: the holders. charged_at: when all of these were last charged whose policies must know
    it at once. Whoever begins to hold is charged then too, so at that time nobody is left to
    charge."""

    device: str
    at: int
    holders: int = 0
    wanting: int = 0
    leased: int = 0
    together: int = 0
    held: int = 0
    beside: int = 0
    even: int = 0
    held_rest: int = 0
    even_rest: int = 0
    holding: dict[int, Tenant] = field(default_factory=dict)
    charged_at: int | None = None

    def advance(self, now: int) -> None:
        """Somebody has held it until now."""
        passed, holders = now - self.at, self.holders
        self.leased += passed
        if holders == 1:
            self.held += passed + self.held_rest
            self.held_rest = 0
        else:
            more, self.held_rest = divmod(passed + self.held_rest, holders)
            self.held += more
            self.together += passed
            self.beside += more
        more, self.even_rest = divmod(passed + self.even_rest, self.wanting)
        self.even += more


def advance(divisions: Iterable[Division], now: int) -> None:
    """Bring all of them up to date."""
    for division in divisions:
        if division.at == now:
            continue
        if division.holders:
            division.advance(now)
        division.at = now

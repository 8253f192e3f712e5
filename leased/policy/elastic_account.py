"""What the elastic policy knows of one tenant: the time that it has had and that it is owed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leased.core.policy import Had

PATIENCE_NS = 60_000_000_000  # after this a waiter is served as if it had been owed something since
SURPLUS = 3  # turns: the most time beyond its part that a tenant has to make up for
ARREARS = 10  # turns: the most time that a tenant can be owed
FIRST_NS = 100_000_000  # the assumed length of a turn until it is known
SAVINGS_NS = 100_000_000  # a hundredth of ten seconds
LEAST_NS = 1_000_000  # to come back, or to go on, for less than this is not worth it
SAVED = ("owed", "over", "level")


@dataclass
class Account:
    """One tenant. Times are in ns; device times are means over its gang.

    owed, over, level: see elastic.py. at: when it was last charged; `over` is as of that time.
    turn: the length of its turns. began: since when it has waited. start: its level when its turn
    began, or when another tenant last began to want the device; None: it has had nothing of a turn
    yet. of_rest: it was owed nothing, so its turn is of time that nobody had requested. barred: it
    waits at its limit."""

    request: float
    limit: float
    gang: tuple[str, ...]
    turn: int = FIRST_NS
    owed: float = 0.0
    over: float = 0.0
    level: float = 0.0
    began: int | None = None
    start: float | None = None
    of_rest: bool = False
    barred: bool = False
    at: int | None = None

    # -- what it has had --------------------------------------------------------------------

    def charge(self, had: Had, now: int) -> bool:
        """Charge what the tenant has had of its devices since it was last charged. Returns whether
        it has held them."""
        part = 1 / len(had.devices)
        held, even, passed = sum(had.held_ns), sum(had.even_ns), had.leased_ns
        time = 0 if self.at is None else now - self.at
        self.at = now
        if self.barred:  # then all time counts: its devices idle if all who want them are barred
            passed = time * len(had.devices)
        owed = part * (self.request * passed - held)
        over = part * held - self.limit * time
        sliced = had.sliced and held > 0
        self.owed += min(owed, 0.0) if sliced else owed
        self.over += min(over, 0.0) if sliced else over
        if held:
            self._run(part * held, alone=even >= held)
        return held > 0

    def _run(self, held: float, alone: bool) -> None:
        """The tenant has held its devices for this long. alone: no other tenant wanted them."""
        before = self.level
        self.began = None
        self.level += held
        if alone:
            self.start, self.of_rest = self.level, True
        elif self.start is None:
            self.start = before

    def wait(self, now: int) -> None:
        """The tenant waits for its next turn. If it has been away, it was not charged for that
        time, and it did not want what it was owed before; only what it is owed from before a
        restart still counts."""
        if self.at != now:
            if self.at is not None:
                self.owed = min(self.owed, 0.0)
            self.over = self.over_by(now)
            self.at = self.began = now
        elif self.began is None:
            self.began = now
        self.start = None

    def bound(self, level: float) -> None:
        """Forget what is too long ago. level: the lowest level that the tenant may have."""
        surplus = SURPLUS * self.turn
        self.owed = max(-surplus, min(self.owed, ARREARS * self.turn))
        self.over = max(self.over, -self.savings)
        self.level = max(level, min(self.level, level + surplus))

    # -- its limit --------------------------------------------------------------------------

    @property
    def burst(self) -> float:
        """By how much its limit may be exceeded for a turn."""
        return self.turn * (1 - self.limit)

    @property
    def savings(self) -> float:
        """How much time below its limit a tenant can save up and have later. It is at least a turn
        of the others: otherwise the tenant would lose that much whenever it waits for one."""
        return max(self.burst, SAVINGS_NS)

    def over_by(self, now: int) -> float:
        """What it has had beyond its limit by then."""
        passed = 0 if self.at is None else now - self.at
        return max(self.over - self.limit * passed, -self.savings)

    # -- its request ------------------------------------------------------------------------

    def due(self, now: int) -> int:
        """The time at which it should be served, or should have been."""
        began = now if self.began is None else self.began
        due = began + PATIENCE_NS
        if self.request > 0:
            due = min(due, now - round(self.owed / self.request))
        return due

    @property
    def due_in(self) -> float | None:
        """How long it is until due(), below 0 if that is over; None: it requests nothing."""
        return -self.owed / self.request if self.request > 0 else None

    # -- for the next daemon ------------------------------------------------------------------

    def saved(self, level: float) -> dict[str, int]:
        """Its accounts, by name; empty: they are as in a new one. level: the lowest that it may
        have."""
        values = self.owed, self.over, self.level - level
        rounded = [round(value) for value in values]
        return dict(zip(SAVED, rounded)) if any(rounded) else {}

    def restore(self, values: Mapping[str, int], level: float) -> None:
        """Take over what saved() returned."""
        self.owed, self.over = values["owed"], values["over"]
        self.level = level + values["level"]


def is_saved(values: Mapping[str, object]) -> bool:
    """Whether these are the accounts of a tenant, by name, as saved() returns them."""
    return len(values) == len(SAVED) and all(type(values.get(name)) is int for name in SAVED)

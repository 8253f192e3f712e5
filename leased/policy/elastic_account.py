"""What the elastic policy (see there) knows of one tenant: what it has had, and what it is owed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leased.core.policy import Had

PATIENCE_NS = 60_000_000_000  # a waiter is served as if it were owed something since then
SURPLUS = 3  # so many turns that a tenant has had too much are remembered,
ARREARS = 10  # and so many that it is owed
FIRST_NS = 100_000_000  # a turn, until more is known
SAVINGS_NS = 100_000_000  # a hundredth of ten seconds
LEAST_NS = 1_000_000  # it is not worth less to come back, or to stay
SAVED = ("owed", "over", "level")


@dataclass
class Account:
    """owed, over, level: see elastic.py. at: when it was last charged, which is the time that
    `over` is as of. turn: how long a turn of it is. began: since when it has waited. start: its
    level when its turn began, or when others last began to want the device; None: it has had
    nothing of a turn yet. of_rest: its turn is of what was left, as it was owed nothing. barred: it
    waits at its limit. waited: how long it has waited in all. pending: what it has had of devices
    that are measured, of `together` beside others, evenly divided, since that was last measured.
    lost: what it has had less than it requests since it has been side by side. Times are ns, those
    of devices on average over its gang."""

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
    waited: int = 0
    pending: float = 0.0
    together: float = 0.0
    lost: float = 0.0

    @property
    def has_share(self) -> bool:
        return self.request > 0 or self.limit < 1

    # -- what it has had --------------------------------------------------------------------

    def charge(self, had: list[Had], now: int, measured: Callable[[str], bool]) -> bool:
        """What it has had of each of its devices since it was last charged. measured: whether what
        it has of that one beside others is measured, and comes later. Returns whether it has held
        them."""
        held = passed = even = later = 0
        part = 1 / len(had)
        for one in had:
            held += one.held_ns
            even += one.even_ns
            passed += one.leased_ns
            if one.beside_ns and measured(one.device):
                later += one.beside_ns
                passed -= one.together_ns
                self.pending += part * one.beside_ns
                self.together += part * one.together_ns
        time = 0 if self.at is None else now - self.at
        self.at = now
        if not held and (self.barred or self.began is not None):
            self.waited += time
        if self.barred:  # also while its devices idle, as all who want them are
            passed = time * len(had)
        self.owed += part * (self.request * passed - (held - later))
        self.over += part * (held - later) - self.limit * time
        if held:
            self._run(part * (held - later), alone=even >= held)
        return held > 0

    def _run(self, held: float, alone: bool) -> None:
        """It has held its devices for so long. alone: nobody else wanted them."""
        before = self.level
        self.began = None
        self.level += held
        if alone:
            self.start, self.of_rest = self.level, True
        elif self.start is None:
            self.start = before

    def wait(self, now: int) -> None:
        """It waits for its next turn. If it has been away, it was not charged for that time. What
        it was owed before that, it did not want; only what a former daemon has said counts."""
        if self.at != now:
            if self.at is not None:
                self.owed = min(self.owed, 0.0)
            self.over = self.over_by(now) - self.pending
            self.at = self.began = now
        elif self.began is None:
            self.began = now
        self.start = None

    def bound(self, level: float) -> None:
        """Forget what is too long ago. level: what it has at least."""
        surplus = SURPLUS * self.turn
        self.owed = max(-surplus, min(self.owed, ARREARS * self.turn))
        self.over = max(self.over, -self.savings - self.pending)
        self.level = max(level, min(self.level, level + surplus))

    def settle(self, worked: float, together: float, slack: float | None) -> None:
        """What it has had beside others is known now, or taken to be so much. slack: how much less
        of its request is none; None: the devices had room for more."""
        self.over += worked
        self.level += worked
        if slack is not None:
            lost = max(0.0, self.request - slack) * together - worked
            self.owed = max(0.0, self.owed + lost)
            self.lost = max(0.0, self.lost + lost)

    @property
    def owed_now(self) -> float:
        """With an even division of what is to be measured yet."""
        return self.owed + self.request * self.together - self.pending

    # -- its limit --------------------------------------------------------------------------

    @property
    def burst(self) -> float:
        """By how much its limit may be exceeded for a turn."""
        return self.turn * (1 - self.limit)

    @property
    def savings(self) -> float:
        """How much of its limit it may not have had and have later: as much, and at least what
        others take in a turn, since it would lose that whenever it waits for one of theirs."""
        return max(self.burst, SAVINGS_NS)

    def over_by(self, now: int) -> float:
        """What it has had beyond its limit by then."""
        passed = 0 if self.at is None else now - self.at
        return max(self.over - self.limit * passed + self.pending, -self.savings)

    # -- its request ------------------------------------------------------------------------

    def due(self, now: int) -> int:
        """Since when it should have been served, or when it should be."""
        began = now if self.began is None else self.began
        due = began + PATIENCE_NS
        if self.request > 0:
            due = min(due, now - round(self.owed_now / self.request))
        return due

    @property
    def due_in(self) -> float | None:
        """Below 0: how long ago a holder should have been served; None: it requests nothing."""
        return -self.owed_now / self.request if self.request > 0 else None

    # -- for the next daemon ------------------------------------------------------------------

    def saved(self, level: float) -> dict[str, int]:
        """Its numbers, by name; empty: it is as a new one. level: what it has at least."""
        values = self.owed_now, self.over + self.pending, self.level - level
        rounded = [round(value) for value in values]
        return dict(zip(SAVED, rounded, strict=True)) if any(rounded) else {}

    def restore(self, values: Mapping[str, int], level: float) -> None:
        """Take over what saved() returned."""
        self.owed, self.over = values["owed"], values["over"]
        self.level = level + values["level"]


def is_saved(values: Mapping[str, object]) -> bool:
    """These are the numbers of an account, by name."""
    return len(values) == len(SAVED) and all(type(values.get(name)) is int for name in SAVED)

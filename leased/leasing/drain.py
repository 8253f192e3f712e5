"""The end of one lease of a job with several processes: who lets whom on, and until when.

A revoked process closes its gate and waits for what it has submitted. That may wait for work of
another process of the job (a collective), which has closed its gate as well. So while one is
stuck, those that have released may submit a call each, again and again, until it is through.

Whoever is let on may take long itself, which looks the same as being stuck. Were it helped at
once it would keep the others busy, and these it, for ever. So a process is helped at once for
what it had submitted before the revoke; for what it submitted when it was let on only if that
has not finished after a while, and each time that happens the whiles are twice as long. Work
that only takes long is outlasted so, and work that does wait for others is helped still.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Rank = TypeVar("Rank")  # a process, told from the others by what it is (hashable)

PATIENCE_NS = 50_000_000
# Work of several processes that ends together is heard of one by one.
SETTLE_NS = 5_000_000


@dataclass(frozen=True)
class Orders(Generic[Rank]):
    """What is to be done now. let_on: who may submit a call. call_back: whose call, which has
    not come, is not needed any more. again: when to ask next (ns); None: when one answers."""

    let_on: list[Rank] = field(default_factory=list)
    call_back: list[Rank] = field(default_factory=list)
    again: int | None = None


class Drain(Generic[Rank]):
    """One revocation of one job's lease. It reads no clock: times go in, in ns."""

    def __init__(self, epoch: int):
        self.epoch = epoch
        self._stuck: dict[Rank, int] = {}  # who does not finish, and since when that is known
        self._helped: set[Rank] = set()  # for whose sake the others are let on
        self._let_on: set[Rank] = set()  # at any time since the revoke
        self._expected: set[Rank] = set()  # let on, and not heard of since
        self._released: dict[Rank, int] = {}  # when each did last
        self._repeats = 0  # how often others were let on for one that was let on itself

    def tell_stuck(self, rank: Rank, now: int) -> None:
        """It says, or is taken for it, that what it has submitted does not finish."""
        self._expected.discard(rank)
        self._stuck.setdefault(rank, now)

    def tell_released(self, rank: Rank, now: int) -> None:
        """All that it has submitted has finished."""
        self._leaves(rank)
        self._released[rank] = now

    def tell_gone(self, rank: Rank) -> None:
        """The process has ended, or its lease is not waited for any more."""
        self._leaves(rank)
        self._let_on.discard(rank)
        self._released.pop(rank, None)

    def _leaves(self, rank: Rank) -> None:
        self._expected.discard(rank)
        self._helped.discard(rank)
        self._stuck.pop(rank, None)

    def answered(self, rank: Rank) -> bool:
        """It has released since the revoke."""
        return rank in self._released

    def orders(self, through: Iterable[Rank], now: int) -> Orders[Rank]:
        """through: the processes of the job that hold nothing now. What is ordered is taken as
        done."""
        self._choose_helped(now)
        if not self._helped:
            unneeded, self._expected = list(self._expected), set()
            due = [self._helped_from(rank) for rank in self._stuck]
            return Orders(call_back=unneeded, again=min(due, default=None))
        let_on, later = [], []
        for rank in through:
            ready = self._ready_from(rank)
            if ready <= now:
                let_on.append(rank)
            else:
                later.append(ready)
        self._let_on.update(let_on)
        self._expected.update(let_on)
        return Orders(let_on, again=min(later, default=None))

    def _choose_helped(self, now: int) -> None:
        self._helped.update(self._stuck.keys() - self._let_on)
        if self._helped:
            return
        self._helped = {rank for rank in self._stuck if self._helped_from(rank) <= now}
        self._repeats += bool(self._helped)

    def _helped_from(self, rank: Rank) -> int:
        """When others are let on for it, if it has not finished by then."""
        return self._stuck[rank] + (PATIENCE_NS << self._repeats)

    def _ready_from(self, rank: Rank) -> int:
        """When it may be let on: the one that is helped may have been through with the same
        work, and its word still be on the way."""
        settle = SETTLE_NS << (self._repeats - 1) if self._repeats else 0
        return self._released.get(rank, -settle) + settle

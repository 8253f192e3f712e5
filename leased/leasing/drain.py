"""The end of one lease of a job with several processes: which of them may submit one more call.

A revoked process shuts its gate and waits until its work has finished. That work may wait for
work of another process of the job (a collective), which has shut its gate as well. So while one
process is stuck, each process that has released is let on: it may submit one call. This repeats
until the stuck process has released.

A process that was let on may submit work that takes long, which looks the same as being stuck. If
it were helped at once, the processes could keep each other busy for ever. So a process is helped
at once only for work from before the revoke. For work that it submitted when it was let on it is
helped after PATIENCE_NS, and that time doubles whenever it happens. Work that only takes long
finishes meanwhile, and work that waits for another process is still helped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Rank = TypeVar("Rank")  # a process: any hashable value that is different for each

PATIENCE_NS = 50_000_000
# The releases of processes whose work ends together arrive one after the other.
SETTLE_NS = 5_000_000


@dataclass(frozen=True)
class Orders(Generic[Rank]):
    """What is to be done now.

    let_on: processes that may submit one call. call_back: processes that were let on, have not
    answered, and are no longer needed. again: when to ask again, in ns; None: when one answers.
    """

    let_on: list[Rank] = field(default_factory=list)
    call_back: list[Rank] = field(default_factory=list)
    again: int | None = None


class Drain(Generic[Rank]):
    """One revoke of one job's lease. It reads no clock: the caller gives times, in ns."""

    def __init__(self, epoch: int):
        self.epoch = epoch
        self._stuck: dict[Rank, int] = {}  # stuck processes, and since when
        self._helped: set[Rank] = set()  # stuck processes for which others are let on
        self._let_on: set[Rank] = set()  # at any time since the revoke
        self._expected: set[Rank] = set()  # let on, and has not answered since
        self._released: dict[Rank, int] = {}  # when each released last
        self._repeats = 0  # how often a process that was let on had to be helped

    def tell_stuck(self, rank: Rank, now: int) -> None:
        """The process is stuck: it says so, or has been silent for too long."""
        self._expected.discard(rank)
        self._stuck.setdefault(rank, now)

    def tell_released(self, rank: Rank, now: int) -> None:
        """The work of the process has finished, and it has released."""
        if self._stuck or self._expected:
            self._leaves(rank)
        self._released[rank] = now

    def tell_gone(self, rank: Rank) -> None:
        """The process has ended, or its release is no longer waited for."""
        self._leaves(rank)
        self._let_on.discard(rank)
        self._released.pop(rank, None)

    def _leaves(self, rank: Rank) -> None:
        self._expected.discard(rank)
        self._helped.discard(rank)
        self._stuck.pop(rank, None)

    def has_released(self, rank: Rank) -> bool:
        """Whether the process has released since the revoke."""
        return rank in self._released

    @property
    def is_plain(self) -> bool:
        """No process is stuck, and none that was let on is waited for, so there are no orders."""
        return not self._stuck and not self._expected

    def orders(self, through: Iterable[Rank], now: int) -> Orders[Rank]:
        """What to do now; the caller does it at once.

        through: the processes of the job that hold no lease now.
        """
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
        """When others are let on for this process, unless it has released by then."""
        return self._stuck[rank] + (PATIENCE_NS << self._repeats)

    def _ready_from(self, rank: Rank) -> int:
        """When the process may be let on.

        It waits for SETTLE_NS: the work of the stuck process may have finished together with its
        own, and the message that says so may not have arrived.
        """
        settle = SETTLE_NS << (self._repeats - 1) if self._repeats else 0
        return self._released.get(rank, -settle) + settle

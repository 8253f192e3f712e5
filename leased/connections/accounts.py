"""Each user's share of the daemon's time. Messages beyond it wait in one queue of that user.

An account has one queue and one timer, so a thousand waiting connections cost no more than one. All
time that is spent for a user is charged to that user, also the time to queue. In the queue the
user's jobs take turns, and the connections of a job do.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from leased.connections.limits import BURST_S, EVENT_COST_S, SHARE, SLICE_S, USERS, Budget, forget


class Served(Protocol):
    """A connection as its account sees it. job: 0 while it is of no job."""

    job: int

    @property
    def account(self) -> Account | None: ...

    def serve(self) -> bool:
        """Serve at most one packet of it. Whether there may be more."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(eq=False)
class Account:
    """The time that one user has left, and the connections of the user that wait for more."""

    loop: asyncio.AbstractEventLoop
    budget: Budget
    # By job: its connections that wait. Both in the order of their turns.
    queue: OrderedDict[int, OrderedDict[Served, None]] = field(default_factory=OrderedDict)
    timer: asyncio.TimerHandle | None = None

    def offer(self, who: Served) -> None:
        """The connection can be read: serve it now, or when its turn comes."""
        budget = self.budget
        budget.credit -= EVENT_COST_S
        began = time.thread_time()
        try:  # as charged() does, without what a context costs: each message comes this way
            if self.queue or budget.credit_at(self.loop.time()) <= 0:
                who.pause()
                self.line_up(who)
            else:
                who.serve()
        finally:
            budget.credit -= time.thread_time() - began

    def spend(self, seconds: float) -> None:
        """The daemon has worked so long for this user, or will have."""
        self.budget.spend(seconds)

    def owes(self) -> bool:
        """Whether the share is used up."""
        return not self.budget.has_credit(self.loop.time())

    @contextmanager
    def charged(self) -> Iterator[None]:
        """A context: the time that is spent inside it is charged to this user."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.budget.spend(time.thread_time() - began)

    def line_up(self, who: Served) -> None:
        self.queue.setdefault(who.job, OrderedDict())[who] = None
        self._arm()

    def leave(self, who: Served) -> None:
        """Its connection is over."""
        line = self.queue.get(who.job)
        if line is not None:
            line.pop(who, None)
            if not line:
                del self.queue[who.job]

    def _arm(self) -> None:
        if self.queue and self.timer is None:
            now = self.loop.time()
            wait = 0.0 if self.budget.has_credit(now) else self.budget.wait_s(now, SLICE_S)
            self.timer = self.loop.call_later(wait, self._serve_waiting)

    def _serve_waiting(self) -> None:
        """Serve waiting connections for a slice of time; other users are served in between."""
        self.timer = None
        self.budget.spend(EVENT_COST_S)
        least = self.budget.credit_at(self.loop.time()) - SLICE_S
        while self.queue and self.budget.credit > max(0.0, least):
            with self.charged():
                self._serve_next()
        self._arm()

    def _serve_next(self) -> None:
        job, line = self.queue.popitem(last=False)
        who, _ = line.popitem(last=False)
        if line:
            self.queue[job] = line  # behind the user's other jobs
        if not who.serve():
            who.resume()
            return
        account = who.account  # with its HELLO it may have become another user's
        if account is None:
            who.resume()
        else:
            account.line_up(who)


@dataclass
class Accounts:
    """By payer: a user's number, or what leased.payers says in place of it."""

    loop: asyncio.AbstractEventLoop
    most: float = BURST_S
    per_s: float = SHARE
    by_payer: dict[int, Account] = field(default_factory=dict)

    def owes(self, payer: int) -> bool:
        """Whether the user's share is used up. Root's has no limit."""
        return payer != 0 and self.of(payer).owes()

    def charged(self, payer: int) -> AbstractContextManager[None]:
        """A context: the time that is spent inside it is charged to the user; root is not."""
        return self.of(payer).charged() if payer else nullcontext()

    def of(self, payer: int) -> Account:
        account = self.by_payer.get(payer)
        if account is None:
            now = self.loop.time()
            if len(self.by_payer) >= USERS:
                forget(self.by_payer, lambda a: not a.queue and a.budget.is_full(now))
            account = Account(self.loop, Budget(self.most, self.per_s, now))
            self.by_payer[payer] = account
        return account

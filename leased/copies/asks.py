"""Whose memory the keeper makes next.

Users take turns, and the jobs of a user do. The time that memory costs the keeper, to make it and
to free it, is charged to its user when it is given back: less the longer it was kept, and nothing
after KEPT_S. For what is kept the bytes that a job may have are the bound. A user who has used up a
share of the keeper's time gets one piece at a time, behind all who have not, and then none for as
long as that took.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Optional

from leased.connections.limits import USERS, Budget, forget

# Called with a descriptor of the memory, which the callee closes; or with None and the reason.
Made = Callable[[Optional[int], str], None]

AT_ONCE = 8  # requests that the keeper has at once
OF_A_USER = 4  # of one user
OF_A_JOB = 3  # of one job: another one of its user need not wait
KEPT_S = 60.0
KEEPER_SHARE = 0.5  # of one processor, for what a user gives back before that
KEEPER_BURST_S = 2.0


def job_of(name: str) -> str:
    """The job whose memory has this name."""
    return name.split(".", maxsplit=1)[0]


class Ask:
    """A request to make one piece of memory. The keeper's answer repeats its number: a process may
    give a name back and use it again before the answer to its first request has come."""

    numbers = itertools.count(1)

    def __init__(self, name: str, size: int, huge: bool, made: Made, user: int):
        self.name = name
        self.made = made
        self.user = user
        self.job = job_of(name)
        self.number = next(self.numbers)
        said = {"op": "make", "name": name, "bytes": size, "huge": huge, "user": user}
        self.message = json.dumps(said | {"ask": self.number})


class Asks:
    """All requests that have not been answered, and what was made of those before. time: a clock,
    in s."""

    def __init__(self, time: Callable[[], float]):
        self.time = time
        self.by_name: dict[str, Ask] = {}
        # By user and job, in the order of their turns: those that the keeper does not have.
        self.waiting: OrderedDict[int, OrderedDict[str, dict[str, Ask]]] = OrderedDict()
        self.under_way: dict[int, Ask] = {}  # those that it has, by number; also of nobody any more
        self.budgets: dict[int, Budget] = {}
        self.rests: dict[int, float] = {}  # users who get nothing until then
        # By name, of memory that is kept: its user, since when, and the seconds that it took.
        self.kept: dict[str, tuple[int, float, float]] = {}
        self.freed: dict[str, tuple[int, float]] = {}  # being freed: its user, and the part charged

    def add(self, ask: Ask) -> None:
        """It waits for its turn."""
        self.by_name[ask.name] = ask
        self._line_up(ask)

    def _line_up(self, ask: Ask) -> None:
        jobs = self.waiting.setdefault(ask.user, OrderedDict())
        jobs.setdefault(ask.job, {})[ask.name] = ask

    def next(self) -> Ask | None:
        """The request that the keeper gets now; None: none for now."""
        if len(self.under_way) >= AT_ONCE:
            return None
        has = Counter(ask.user for ask in self.under_way.values())
        of_job = Counter(ask.job for ask in self.under_way.values())
        owing = {user: self._owes(user) for user in self.waiting}
        for user in sorted(self.waiting, key=owing.__getitem__):
            rests = owing[user] and self.rests.get(user, 0.0) > self.time()
            if not rests and has[user] < (1 if owing[user] else OF_A_USER):
                for job in self.waiting[user]:
                    if of_job[job] < OF_A_JOB:
                        return self._turn(user, job)
        return None

    def _turn(self, user: int, job: str) -> Ask:
        """The next request of the job, which is last now, and so is its user."""
        jobs = self.waiting[user]
        ask = next(iter(jobs[job].values()))
        self._leave(ask)
        if job in jobs:
            jobs.move_to_end(job)
        if user in self.waiting:
            self.waiting.move_to_end(user)
        self.under_way[ask.number] = ask
        return ask

    def _leave(self, ask: Ask) -> None:
        jobs = self.waiting.get(ask.user, OrderedDict())
        names = jobs.get(ask.job, {})
        names.pop(ask.name, None)
        if not names:
            jobs.pop(ask.job, None)
        if not jobs:
            self.waiting.pop(ask.user, None)

    def pause_s(self) -> float | None:
        """Seconds until a user's rest is over; None: nobody waits for that alone."""
        if len(self.under_way) >= AT_ONCE:
            return None
        ends = [self.rests[user] for user in self.waiting if user in self.rests]
        return max(0.0, min(ends) - self.time()) if ends else None

    # -- answers -------------------------------------------------------------------

    def answered(self, said: dict[str, Any]) -> Ask | None:
        """The keeper has done with a request. Returns it, if somebody waits for the answer."""
        done = self.under_way.pop(int(said["ask"]), None)
        took = float(said["took"])
        if done is not None:
            self._rest(done.user, took)
        if done is None or self.by_name.get(done.name) is not done:
            return None
        del self.by_name[done.name]
        self.kept.setdefault(done.name, (done.user, self.time(), took))  # it may be sent again
        return done

    def given_back(self, name: str) -> None:
        """The memory of that name is to be freed, or not to be made."""
        ask = self.by_name.pop(name, None)
        if ask is not None:
            self._leave(ask)
        if name in self.kept:
            user, since, took = self.kept.pop(name)
            part = max(0.0, 1.0 - (self.time() - since) / KEPT_S)
            self._spend(user, took * part)
            self.freed[name] = user, part

    def ended(self, said: dict[str, Any]) -> None:
        """The keeper has freed memory; with a number, what it had made for nobody."""
        took = float(said["took"])
        if "ask" in said:
            done = self.under_way.pop(int(said["ask"]), None)
            if done is not None:
                self._spend(done.user, took)
                self._rest(done.user, took)
        elif said["ended"] in self.freed:
            user, part = self.freed.pop(said["ended"])
            self._spend(user, took * part)

    def lost(self) -> None:
        """The keeper has ended. The next one is asked again."""
        under_way, self.under_way = self.under_way, {}
        for ask in under_way.values():
            if self.by_name.get(ask.name) is ask:
                self._line_up(ask)
        self.freed.clear()

    def take_all(self) -> list[Ask]:
        """Nobody will answer: remove all requests, and return them."""
        asks = list(self.by_name.values())
        self.by_name.clear()
        self.waiting.clear()
        return asks

    # -- the keeper's time ------------------------------------------------------------

    def _owes(self, user: int) -> bool:
        budget = self.budgets.get(user)
        return budget is not None and not budget.has_credit(self.time())

    def _spend(self, user: int, seconds: float) -> None:
        now = self.time()
        if len(self.budgets) >= USERS:
            forget(self.budgets, lambda budget: budget.is_full(now))
        self.budgets.setdefault(user, Budget(KEEPER_BURST_S, KEEPER_SHARE, now)).spend(seconds)

    def _rest(self, user: int, seconds: float) -> None:
        if self._owes(user):
            self.rests[user] = self.time() + seconds
        else:
            self.rests.pop(user, None)

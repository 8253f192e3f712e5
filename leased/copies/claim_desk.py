"""Processes claim host memory for copies when they allocate device memory.

A claim beyond limits.swap_host is refused, and the program gets the driver's error for too little
memory. With limits.swap_full = "wait" it waits instead, until other jobs have freed memory. What a
process claims for a device counts in place of what it claimed there before, also of a claim that
waits: it has freed memory meanwhile. So a process has one claim that waits for each device.

After a restart claims are answered when all processes have come back, or have had time to: until
then it is not known what the others have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from _gpulease import lib

from leased.copies.claims import Claims
from leased.copies.node_memory import Asker, NodeMemory
from leased.wire import client_messages, daemon_messages

LOOK_S = 0.2  # between looks while a claim waits
JOBS_A_LOOK = 16  # so many of those that wait have their turn at a look
DEVICES = int(lib.GL_MAX_DEVICES)  # of a process, at most: so many claims of it wait
WAIT = "wait"  # as limits.swap_full names it
GIB = 1 << 30


@dataclass(frozen=True)
class Waiter:
    asker: Asker
    job_id: int
    claim: client_messages.Claim

    def is_for(self, asker: Asker, uuid: str) -> bool:
        return self.asker is asker and self.claim.uuid == uuid


def words(what: str, budget: int) -> str:
    """The sentence that the interposer prints on the standard error of the process."""
    return (
        f"{what}: this node's {budget / GIB:.1f} GiB of host memory for copies of GPU memory are "
        "used up; use mem:SIZE to have less of the GPU, or ask the administrator for a "
        "larger limits.swap_host"
    )


class ClaimDesk:
    """Answers claims. full: limits.swap_full now, what is done with a claim beyond the budget."""

    def __init__(
        self,
        memory: NodeMemory,
        claims: Claims,
        loop: asyncio.AbstractEventLoop,
        full: Callable[[], str],
    ):
        self.memory = memory
        self.claims = claims
        self.loop = loop
        self.full = full
        self.settled: Callable[[], bool] = lambda: True  # whether all have come back
        self.held: list[Waiter] = []  # claims that are not answered before that
        self.waiters: list[Waiter] = []
        self.timer: asyncio.TimerHandle | None = None
        memory.needs = claims.needs

    def claim(self, asker: Asker, job_id: int, message: client_messages.Claim) -> None:
        """The process is about to allocate: grant the claim, let it wait, or refuse it."""
        place = self._take_back(asker, message.uuid)
        if not self.settled():
            self.held.append(Waiter(asker, job_id, message))
            self._look_later()
            return
        granted = self._grant(asker, job_id, message)
        if granted is not None:
            self._answer(asker, message, lib.GL_CLAIM_GRANTED, granted)
        elif self.full() == WAIT and self._may_wait(asker):
            self._answer(asker, message, lib.GL_CLAIM_WAITS, 0, self._words("this process waits"))
            self.waiters.insert(place, Waiter(asker, job_id, message))
            self._look_later()
        else:
            has = self.claims.of(asker, message.uuid)
            words = self._words("out of memory")
            self._answer(asker, message, lib.GL_CLAIM_REFUSED, has, words)

    def _grant(self, asker: Asker, job_id: int, message: client_messages.Claim) -> int | None:
        """The bytes to grant: what it would like, or else what it needs; None: too few are left.

        Where too few are left already, what takes none of them is granted nevertheless."""
        before, left = self.claims.of(asker, message.uuid), self.memory.left()
        for size in (message.bytes, message.least):
            self.claims.set(asker, job_id, message.uuid, size)
            if size <= before or self.memory.left() >= min(0, left):
                return size
        self.claims.set(asker, job_id, message.uuid, before)
        return None

    def _may_wait(self, asker: Asker) -> bool:
        return sum(waiter.asker is asker for waiter in self.waiters) < DEVICES

    def _take_back(self, asker: Asker, uuid: str) -> int:
        """The process claims something else there. Returns its place in the line."""
        self.held = [one for one in self.held if not one.is_for(asker, uuid)]
        for place, waiter in enumerate(self.waiters):
            if waiter.is_for(asker, uuid):
                del self.waiters[place]
                return place
        return len(self.waiters)

    def _words(self, what: str) -> str:
        return words(what, self.memory.budget())

    @staticmethod
    def _answer(
        asker: Asker, claim: client_messages.Claim, code: int, size: int, words: str = ""
    ) -> None:
        asker.send(daemon_messages.claimed(code, claim.number, claim.uuid, size, words))

    @property
    def waiting(self) -> set[int]:
        """The jobs of which a process waits for host memory."""
        return {waiter.job_id for waiter in self.waiters}

    # -- waiting claims -------------------------------------------------------------------

    def _look_later(self) -> None:
        if (self.waiters or self.held) and self.timer is None:
            self.timer = self.loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Grant waiting claims, in the order in which the jobs came. Those of a job wait for one
        another and for no other job's, which may never be granted."""
        self.timer = None
        if self.settled():
            held, self.held = self.held, []
            for one in held:
                self.claim(one.asker, one.job_id, one.claim)
        jobs = list(dict.fromkeys(waiter.job_id for waiter in self.waiters))
        for job_id in jobs[:JOBS_A_LOOK]:
            self._look_at(job_id)
        if len(jobs) > JOBS_A_LOOK:  # the next look begins with those that have not had theirs
            behind = set(jobs[:JOBS_A_LOOK])
            self.waiters.sort(key=lambda waiter: waiter.job_id in behind)
        self._look_later()

    def _look_at(self, job_id: int) -> None:
        for waiter in [one for one in self.waiters if one.job_id == job_id]:
            granted = self._grant(waiter.asker, job_id, waiter.claim)
            if granted is None:
                return
            self.waiters.remove(waiter)
            self._answer(waiter.asker, waiter.claim, lib.GL_CLAIM_GRANTED, granted)

    def move(self, asker: object, old: str, new: str) -> None:
        """The process has moved from the one device to the other, with what it has claimed there
        and what it waits for."""
        self.claims.move(asker, old, new)

        def moved(one: Waiter) -> Waiter:
            there = one.asker is asker and one.claim.uuid == old
            return replace(one, claim=one.claim._replace(uuid=new)) if there else one

        self.waiters, self.held = list(map(moved, self.waiters)), list(map(moved, self.held))

    def forget(self, asker: object) -> None:
        """The connection of the process has ended. On the next one it claims what it has again."""
        self.claims.forget(asker)
        self.waiters = [waiter for waiter in self.waiters if waiter.asker is not asker]
        self.held = [one for one in self.held if one.asker is not asker]

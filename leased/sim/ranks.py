"""The processes of a job on several nodes, which wait for each other on the GPU: each burst begins
when all can compute, and is over when all have done their part, as a collective is."""

from __future__ import annotations

from leased.sim.clients import Client
from leased.sim.jobs import Job
from leased.sim.swapping import Node

LEAST = 1.0  # ns of work: who waits for the others has its kernel on the GPU


class Ranks:
    """there: who is ready to begin a burst; done: whose part of it is done."""

    def __init__(self, number: int):
        self.number = number
        self.there: list[Rank] = []
        self.done: list[Rank] = []

    def arrive(self, rank: Rank) -> None:
        self.there.append(rank)
        if len(self.there) + len(self.done) == self.number:
            there, self.there = self.there, []
            for one in there:
                one.begin_burst()

    def finish(self, rank: Rank) -> None:
        self.done.append(rank)
        if len(self.done) == self.number:
            done, self.done = self.done, []
            for one in done:
                one.end_burst()

    def leave(self, rank: Rank) -> None:
        """It has been stopped."""
        for some in (self.there, self.done):
            if rank in some:
                some.remove(rank)


class Rank(Client):
    """One of them."""

    def __init__(self, node: Node, who: int, job: Job, ranks: Ranks):
        super().__init__(node, who, job)
        self.ranks = ranks

    def work(self) -> None:
        self.loads = True
        self.ranks.arrive(self)

    def begin_burst(self) -> None:
        super().work()

    def end(self) -> None:
        self.loads, self.left = True, LEAST
        self.ranks.finish(self)

    def end_burst(self) -> None:
        self.loads = False
        super().end()

    def stopped(self) -> float:
        self.ranks.leave(self)
        return max(LEAST, super().stopped())

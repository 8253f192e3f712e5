"""Scenarios in which others order the leases of some jobs, as those of jobs on several nodes are.

Who orders takes its time, lets go again without a reason, and may have been told of what is not so
any more.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from leased.core import orders
from leased.core.events import Ordered
from leased.core.state import Tenant
from tests.core.client import MS
from tests.core.judge import Judge
from tests.core.mixes import any_scenario
from tests.core.scenario import Job, Scenario

if TYPE_CHECKING:
    from tests.core.world import World

GATHER_NS = 30_000 * MS


class Conductor:
    """Orders the leases of one job."""

    def __init__(self, world: World, tenant: int):
        self.world, self.tenant = world, tenant
        self.random = random.Random(tenant)
        self.state = orders.REST
        self.ready = False
        self.turn = 0  # what was planned before it grew is not done

    def order(self, order: str, state: str | None = None) -> None:
        self.state = state or order
        self.turn += 1
        self.world.do(Ordered(self.tenant, order))

    def later(self, order: str, least: int = 0, state: str | None = None) -> None:
        """In a while, unless something else is ordered before."""
        turn, delay = self.turn, least + self.random.choice((0, 1, 20, 2000)) * MS

        def due() -> None:
            known = self.world.conductors.get(self.tenant) is self
            if known and turn == self.turn:
                if order == orders.HOLD and self.is_in_the_way():
                    self.again()
                else:
                    self.order(order, state)

        self.world.timeline.after(delay, due)

    def is_in_the_way(self) -> bool:
        """Another one keeps a device of the job: of two that are ordered one goes first."""
        jobs = self.world.scenario.jobs
        return any(
            other.state in orders.KEEPS
            and set(jobs[other.tenant].gang) & set(jobs[self.tenant].gang)
            for other in self.world.conductors.values()
            if other is not self
        )

    def wants(self) -> None:
        """A process of the job waits."""
        if self.state == orders.REST:
            self.later(orders.LINE)

    def answered(self, answer: str) -> None:
        if answer in (orders.READY, orders.UNREADY):
            self.ready = answer == orders.READY
            if self.state == orders.HOLD and not self.ready:
                self.order(orders.BACK, orders.LINE)
            elif self.state == orders.LINE and self.ready:
                self.hold()
        elif answer == orders.HELD and self.state == orders.HOLD:
            self.turn += 1
            if self.random.random() < 0.2:
                self.later(orders.BACK, state=orders.LINE)
                self.again()
            else:
                self.later(orders.RUN)
        elif answer == orders.ENDS and self.state == orders.RUN:
            self.later(orders.STOP)
        elif answer == orders.STOPPED and self.state == orders.STOP:
            self.turn += 1
            self.later(orders.REST)
            self.world.timeline.after(5000 * MS, self.look)

    def hold(self) -> None:
        turn = self.turn
        self.later(orders.HOLD)

        def begun() -> None:
            if self.turn == turn + 1 and self.state == orders.HOLD:
                self.order(orders.BACK, orders.LINE)
                self.again()

        self.world.timeline.after(GATHER_NS, begun)

    def again(self) -> None:
        """After it has let go it tries again."""
        self.world.timeline.after(4000 * MS, self.try_again)

    def try_again(self) -> None:
        if self.state == orders.LINE and self.ready:
            self.hold()

    def look(self) -> None:
        entry = self.world.entries.get(self.tenant)
        if entry is not None and entry.wants and self.state == orders.REST:
            self.later(orders.LINE)

    def restarted(self) -> None:
        """A new daemon begins with what was promised."""
        self.ready = False
        promised = self.state in orders.KEEPS
        self.order(orders.STOP if promised else orders.REST)


class OrderedJudge(Judge):
    """Nobody is bound to wait for so long only: whoever orders may take any time."""

    def waiters(self) -> None: ...

    def idle_devices(self) -> None: ...

    def exclusive(self, holders: list[Tenant]) -> None:
        super().exclusive(holders)
        for tenant in self.a.tenants.values():
            if tenant.ordered == orders.RUN and tenant.lease is None:
                self.broken(f"{tenant.id} does not keep its devices")
            if tenant.ordered in orders.OUT_OF_LINE and tenant.place is not None:
                self.broken(f"{tenant.id} stands in the line without an order")


def is_ordered(job: Job) -> Job:
    lock = "auto" if job.lock == "off" else job.lock
    return replace(job, ordered=True, request=0.0, limit=1.0, job_class="none", lock=lock)


def ordered_scenario(seed: int) -> Scenario:
    """As any_scenario draws it, with some jobs, or all, whose leases others order."""
    scenario = any_scenario(seed)
    r = random.Random(f"orders of {seed}")
    part = r.choice((0.2, 0.5, 1.0))
    jobs = [is_ordered(job) if r.random() < part else job for job in scenario.jobs]
    ordered = {n for n, job in enumerate(jobs) if job.ordered}
    pokes = [p for p in scenario.pokes if not (p.what == "widen" and p.who in ordered)]
    return replace(scenario, jobs=tuple(jobs), pokes=tuple(pokes))

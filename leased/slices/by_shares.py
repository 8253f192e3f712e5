"""The time slices of jobs of which one or more have shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from leased.slices.balance import Balance
from leased.slices.demand import LITTLE, Demand, Order
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, MADE_US, SHORT_US, Choice, Seen
from leased.slices.limits import Limits
from leased.slices.targets import targets

SATISFIED = "it uses less than its part of the GPU, and wants no more"
SETTLE = 2  # looks
ALL = 0.99  # of the time
CUT = 0.3  # a job that is cut by more, or held by its limit, is not asked what it wants
PUSHING = "it uses less than its part of the GPU; it is looked at whether it wants more"


@dataclass
class ByShares:
    """Of one device. settling: looks until NVML shows what has been chosen. pushed_from:
    the cuts before the last push."""

    balance: Balance = field(default_factory=Balance)
    demands: dict[int, Demand] = field(default_factory=dict)
    settling: int = SETTLE
    pushed_from: dict[int, float] = field(default_factory=dict)

    def choose(
        self, now: int, jobs: Mapping[int, Seen], used: Mapping[int, float], limits: Limits
    ) -> dict[int, Choice]:
        """used: what part of the time since the last look the device worked for each job."""
        self._meet(jobs)
        if self.settling:
            self.settling -= 1
        else:
            self._measured(now, jobs, used, limits)
        return self.same(jobs, used)

    def same(self, jobs: Mapping[int, Seen], used: Mapping[int, float]) -> dict[int, Choice]:
        """What has been decided until now, for these jobs."""
        self._meet(jobs)
        parts, wants = self._parts(jobs, used)
        return self._content(wants) | self._hungry(jobs, parts, wants)

    def _meet(self, jobs: Mapping[int, Seen]) -> None:
        """Begin anew where jobs have come or gone."""
        if self.demands.keys() != jobs.keys():
            self.demands = {job: Demand() for job in jobs}
            self.settling = SETTLE

    def _measured(
        self, now: int, jobs: Mapping[int, Seen], used: Mapping[int, float], limits: Limits
    ) -> None:
        """What has been chosen has had its effect."""
        parts, _ = self._parts(jobs, used)
        entitled = targets(jobs, {})
        if sum(entitled.values()) >= ALL:  # else their limits alone divide it
            self.balance.measured(parts, used)
        for job in jobs:
            held = self.balance.cuts.get(job, 0.0) > CUT or limits.of(job) < 1
            if held and not self.demands[job].pushing:
                self.demands[job].forget()
            elif (order := self.demands[job].look(now, used[job], entitled[job])) is not None:
                parts, _ = self._parts(jobs, used)
                self._obey(job, order, parts, used)

    def _parts(
        self, jobs: Mapping[int, Seen], used: Mapping[int, float]
    ) -> tuple[dict[int, float], Collection[int]]:
        """What the jobs that want more are to have; and those that do not."""
        wants = {job: used[job] for job in jobs if self.demands[job].wants is not None}
        parts = targets(jobs, wants)
        return {job: part for job, part in parts.items() if job not in wants}, wants.keys()

    def _obey(
        self, job: int, order: Order, parts: Mapping[int, float], used: Mapping[int, float]
    ) -> None:
        """Push those back that have their part for the sake of a job, or let them go."""
        self.settling = SETTLE
        if order is Order.PUSH:
            self.pushed_from = dict(self.balance.cuts)
            enough = [one for one, part in parts.items() if used[one] >= LITTLE * part]
            self.balance.push(enough, parts)
        else:
            way = self.demands[job].way(parts[job]) if order is Order.CUT else 0.0
            self.balance.go_back(self.pushed_from, way)

    @staticmethod
    def _content(content: Collection[int]) -> dict[int, Choice]:
        """Of jobs that want no more: the bursts of a single one are not interrupted."""
        us = LONG_US if len(content) == 1 else AS_MADE
        return dict.fromkeys(content, Choice(us, ALWAYS, SATISFIED))

    def _hungry(
        self, jobs: Mapping[int, Seen], parts: Mapping[int, float], content: Collection[int]
    ) -> dict[int, Choice]:
        """Of jobs that are to have these parts. Beside some that want no more theirs are short."""
        slices = self.balance.slices(parts)
        if content and parts:
            one = len(parts) == 1 and all(jobs[job].processes == 1 for job in parts)
            scale = min(1.0, (SHORT_US if one else MADE_US) / max(slices.values()))
            slices = {job: us * scale for job, us in slices.items()}
        return {
            job: Choice(
                max(SHORT_US, round(slices[job] / jobs[job].processes)),
                round(self.balance.duty(job, parts) * ALWAYS),
                PUSHING if self.demands[job].pushing else f"it is to have {part:.2f} of the GPU",
            )
            for job, part in parts.items()
        }

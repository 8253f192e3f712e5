"""Jobs in simulated time on a device whose work is measured, as NVML does, twice a second.

Jobs that have work under way at once divide the device by their pull: evenly, as the driver's time
slices do, unless a test says otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from leased.core.arbiter import WorkMeasured
from leased.core.gauge import WorkPart
from tests.core.client import CLOSING, MS, OPEN
from tests.core.scenario import Job, Poke
from tests.core.world import S
from tests.policy.watched import Watched

STEP_NS = 5 * MS
LOOK_NS = S // 2


def even(_: int, __: int) -> float:
    return 1.0


class Worked(Watched):
    """worked: by job, for how many ns the device has worked for it; by second from the start on in
    `had`. pull: of a job at a time. says: whether the driver then says whose the work is."""

    def __init__(
        self,
        jobs: Sequence[Job],
        seconds: int,
        pokes: Sequence[Poke] = (),
        *,
        pull: Callable[[int, int], float] = even,
        says: Callable[[int], bool] = lambda _: True,
        **other: Any,
    ):
        self.pull, self.says = pull, says
        self.worked: dict[int, float] = {}
        self.told: dict[int, float] = {}
        self.beside: list[int] = []  # by half second, the most that had a lease at once
        self.most = 0
        self.changes = 0  # from turns to side by side, or back
        self.end = seconds * S
        super().__init__(jobs, seconds, pokes, **other)

    def set_policies(self) -> None:
        super().set_policies()
        for at in range(STEP_NS, self.end, STEP_NS):
            self.at(at, self._step)
        for at in range(LOOK_NS, self.end, LOOK_NS):
            self.at(at, functools.partial(self._look, at))

    def _step(self) -> None:
        clients = (entry.client for entry in self.entries.values())
        at_work = [c.tenant for c in clients if c.works and c.gate in (OPEN, CLOSING)]
        pulls = {tenant: self.pull(tenant, self.now) for tenant in at_work}
        for tenant, pull in pulls.items():
            part = STEP_NS * pull / sum(pulls.values())
            self.worked[tenant] = self.worked.get(tenant, 0.0) + part
        leases = [t.lease for t in self.a.devices["d0"].holders.values() if t.lease]
        self.most = max(self.most, sum(not lease.revoked for lease in leases))

    def _look(self, at: int) -> None:
        since = {n: worked - self.told.get(n, 0.0) for n, worked in self.worked.items()}
        self.told = dict(self.worked)
        self.beside.append(self.most)
        self.most = 0
        busy = min(100, round(100 * sum(since.values()) / LOOK_NS))
        weights = {n: round(100 * worked / LOOK_NS) for n, worked in since.items()}
        parts = tuple(WorkPart(n, weight) for n, weight in weights.items() if weight)
        before = self._is_on()
        if self.says(at):
            self.do(WorkMeasured("d0", LOOK_NS, busy, None, parts))

        self.changes += self._is_on() != before

    def _is_on(self) -> bool:
        """Whether the policy lets those with a share run beside others."""
        rules = self.a.rules
        shares = [t for t in rules.tenants.values() if t.has_share]
        return any(rules.policies.of(tenant).beside(rules, tenant) for tenant in shares)

    def note(self) -> None:
        self.had.append({n: round(worked) for n, worked in self.worked.items()})

    def side_by_side(self, begin: int, end: int) -> float:
        """In which part of the time between these seconds several had a lease."""
        held = self.beside[2 * begin : 2 * end]
        return sum(n > 1 for n in held) / len(held)

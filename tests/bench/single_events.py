"""What single events cost that concern all jobs of a GPU, while 1,000 jobs hold it at once.

They are rare, and so hardly count in a mean of all events. Those that set something are timed with
all that follows from them at once, as the messages to the jobs: by turns, 999 are revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from leased.core.arbiter import (
    Action,
    Closed,
    DrainSet,
    Event,
    LockSet,
    Opened,
    PolicySet,
    QuantumSet,
    Requested,
    Tick,
    WorkMeasured,
)
from leased.core.gauge import WorkPart
from tests.bench.crowds import TENANTS, Crowd, Member, S, any_gangs

MS = S // 1000
ROUNDS = 3
PAUSE_NS = S // 5  # after which a job that has ended does not count as one that pauses
OTHER = {"fcfs": "fair", "fair": "fcfs", "elastic": "fcfs"}  # another policy than that one

SIDE_BY_SIDE: dict[str, Callable[[], list[Member]]] = {
    "on_one": lambda: [Member((0,), "auto", 0) for _ in range(TENANTS)],
    "gangs_on_64": lambda: [m._replace(lock="auto", size=0) for m in any_gangs(64, 64)],
}


class Holding(Crowd):
    """All have asked, and hold their devices at once."""

    def __init__(self, members: list[Member], policy_name: str):
        super().__init__(members, policy_name)
        self.policy_name = policy_name
        self.took_us: dict[str, float] = {}
        self.settle([action for tenant in list(self.a.tenants) for action in self.ask(tenant)])

    def ask(self, tenant: int) -> list[Action]:
        return self.a.handle(Requested(tenant), 0)

    def settle(self, todo: list[Action]) -> None:
        while todo:
            todo += self.answer(todo.pop(0))

    def time(self, name: str, event: Event, after: int = MS) -> None:
        """Time one event that comes so long after the one before."""
        self.now += after
        self.took.clear()
        todo = self.do(event)
        us = round(self.took[0] / 1000, 1)
        self.took_us[name] = min(us, self.took_us.get(name, us))
        self.settle(todo)

    def round(self) -> None:
        gang = tuple(f"d{n}" for n in self.members[0].gang)
        comer = len(self.members) - 1  # its member is the first one's again
        self.a.handle(Opened(comer, gang, "auto", S), self.now)
        self.time("comes", Requested(comer))
        self.time("ends", Closed(comer))
        self.a.handle(Tick(), self.now + PAUSE_NS)
        self.now += PAUSE_NS
        for name, event in settings(gang[0], self.policy_name, len(self.members) - 1):
            self.time(name, event, S // 2)


def settings(device: str, policy_name: str, jobs: int) -> Iterator[tuple[str, Event]]:
    """What is measured of one device, and what the site sets there and sets back."""
    parts = tuple(WorkPart(tenant, 1 + tenant % 7) for tenant in range(jobs))
    yield "work_measured", WorkMeasured(device, S // 2, 80, 1000)
    yield "work_measured_of_each", WorkMeasured(device, S // 2, 80, 1000, parts)
    yield "quantum_set", QuantumSet(device, 2 * S)
    yield "quantum_set", QuantumSet(device, None)
    yield "policy_set", PolicySet(device, OTHER[policy_name])
    yield "policy_set_back", PolicySet(device, policy_name)
    yield "lock_off", LockSet(device, "off")
    yield "lock_off_no_more", LockSet(device, None)
    yield "drain", DrainSet(device, True)
    yield "resume", DrainSet(device, False)


def us_of_one(policy_name: str) -> dict[str, dict[str, float]]:
    """Microseconds of each such event, the best of several, by where the jobs run side by side."""
    found = {}
    for where, members in SIDE_BY_SIDE.items():
        jobs = members()
        holding = Holding([*jobs, jobs[0]], policy_name)
        holding.a.handle(Closed(len(jobs)), 0)
        for _ in range(ROUNDS):
            holding.round()
        found[where] = holding.took_us
    return found

"""Turns that were found better than side by side: short and even, whatever the jobs asked for."""

from __future__ import annotations

from leased import policy
from leased.core.arbiter import (
    Action,
    Arbiter,
    Event,
    Grant,
    LockSet,
    MemoryChanged,
    ModeSet,
    Opened,
    QuantumSet,
    Released,
    Requested,
    Revoke,
    Tick,
)

S = 1_000_000_000
MS = 1_000_000
TURN = 100 * MS
HANDOFF = 3 * MS // 2


class Pair:
    """Two jobs that always compute; what each has submitted ahead takes so many ns to drain."""

    def __init__(self, drains: tuple[int, int], quanta: tuple[int, int] = (30 * S, S)):
        self.a = Arbiter({"d0": 100}, policy.make)
        self.drains = drains
        self.now = 0
        self.todo: list[tuple[int, Event]] = []
        self.works: dict[int, int] = {}
        self.slices: list[tuple[int, int, int]] = []  # who computed, from when, until when
        for tenant, quantum in enumerate(quanta):
            self.a.handle(Opened(tenant, ("d0",), "auto", quantum), 0)

    def do(self, event: Event) -> list[Action]:
        if isinstance(event, Released):
            self.slices.append((event.tenant, self.works.pop(event.tenant), self.now))
        actions = self.a.handle(event, self.now)
        for action in actions:
            if isinstance(action, Grant):
                self.works[action.tenant] = self.now + HANDOFF
            elif isinstance(action, Revoke):
                end = self.now + self.drains[action.tenant]
                self.todo.append((end, Released(action.tenant, action.epoch)))
        if isinstance(event, Released):
            self.do(Requested(event.tenant))
        return actions

    def run(self, until: int) -> None:
        while True:
            due = self.a.next_deadline()
            times = [when for when, _ in self.todo] + ([] if due is None else [due])
            if not times or min(times) > until:
                self.now = until
                return
            self.now = max(self.now, min(times))
            ready = [item for item in self.todo if item[0] <= self.now]
            self.todo = [item for item in self.todo if item[0] > self.now]
            for _, event in ready:
                self.do(event)
            if not ready:
                self.do(Tick())

    def had(self, tenant: int, start: int, end: int) -> int:
        """ns that it computed within an interval."""
        return sum(
            max(0, min(end, last) - max(start, first))
            for who, first, last in self.slices
            if who == tenant
        )


def by_turns(drains: tuple[int, int]) -> Pair:
    pair = Pair(drains)
    for tenant in (0, 1):
        pair.do(Requested(tenant))
    pair.do(ModeSet("d0", True, "measured", TURN))
    return pair


def test_two_saturating_jobs_have_the_same_in_any_five_seconds() -> None:
    """Their quanta are 30 s and 1 s, and one of them drains for ten times as long."""
    pair = by_turns((MS, 10 * MS))
    pair.run(60 * S)
    for start in range(S, 54 * S, 37 * MS):  # the last turn has not ended
        one, other = (pair.had(tenant, start, start + 5 * S) for tenant in (0, 1))
        assert abs(one - other) <= 0.05 * max(one, other), f"{one} and {other} from {start}"
        assert one + other >= 0.98 * 5 * S, "handoffs take next to nothing"


def test_turns_are_as_the_jobs_asked_as_soon_as_memory_has_to_move() -> None:
    pair = by_turns((0, 0))
    pair.run(S)
    for tenant in (0, 1):
        pair.do(MemoryChanged(tenant, "d0", 60))
    pair.a.devices["d0"].residency.paging.bytes_s = 1e6
    (holder,) = pair.a.rules.holders("d0")
    assert pair.a.rules.quantum(holder, 0) == holder.quantum_ns


def test_quanta_of_the_site_or_the_job_override_short_turns() -> None:
    pair = by_turns((0, 0))
    tenant = pair.a.tenants[0]
    assert pair.a.rules.quantum(tenant, 0) == TURN
    pair.do(QuantumSet("d0", 7 * S))
    assert pair.a.rules.quantum(tenant, 0) == 7 * S
    pair.do(QuantumSet("d0", None))
    pair.do(LockSet("d0", "on"))
    assert pair.a.rules.quantum(tenant, 0) == 30 * S

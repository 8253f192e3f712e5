"""What usage adds up to, whatever the adversary's jobs, processes and sites do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict

import pytest

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.events import LeftUncopied, Opened, StraySeen, WorkMeasured
from leased.core.state import Device
from leased.usage.gauge import WorkPart
from leased.usage.usage import Usage
from tests.core.client import MS
from tests.core.draws import random_scenario
from tests.core.judge import Broken
from tests.core.mixes import any_scenario
from tests.core.scenario import Scenario
from tests.core.silent import Silent
from tests.core.world import World
from tests.support.long import long

SEEDS = range(4)
EVERY_NS = 700 * MS  # the driver is asked
EACH = 4  # so many events the sums are taken: what was lost, or given twice, stays so
TAKES_MJ = 300_000  # a second


class Books(World):
    """Adds up, again and again, what all tenants have had of each device, and its idle time.

    slack: the ns that dividing whole ns among those side by side may have lost, by device.
    """

    def __init__(self, scenario: Scenario, policy_name: str = policy.DEFAULT):
        self.of: Arbiter | None = None
        self.begin_at = 0
        self.begin: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.slack: dict[str, int] = {}
        self.before = self.events = 0
        self.empty: set[str] = set()
        self.ended: dict[str, int] = {}
        self.taken = self.given = 0
        self.counted: set[str] = set()  # figures that are not 0 for some tenant
        super().__init__(scenario, handled=self.book, policy_name=policy_name, judge=Silent)
        self.measure(0)

    def measure(self, n: int) -> None:
        """The driver says something, or nothing."""
        busy = None if n % 5 == 4 else n * 37 % 101
        energy = None if n % 7 == 6 else TAKES_MJ * EVERY_NS // 10**9
        if n:
            for uuid in self.a.devices:
                self.taken += energy or 0
                parts = self.parts(n, busy)
                self.do(WorkMeasured(uuid, EVERY_NS, busy, energy, parts))
        self.timeline.after(EVERY_NS, functools.partial(self.measure, n + 1))

    def parts(self, n: int, busy: int | None) -> tuple[WorkPart, ...]:
        """Whose work it was, as far as the driver says, which is wrong about some."""
        if busy is None or n % 3 == 2:
            return ()
        weights = {tenant: (n * 31 + tenant * 17) % 101 for tenant in [*self.a.tenants, 10**6]}
        return tuple(WorkPart(tenant, w) for tenant, w in weights.items() if w)

    def usages(self) -> list[tuple[str, Usage]]:
        return [each for t in self.a.tenants for each in self.a.usage(t, self.now).items()]

    def leased(self) -> dict[str, int]:
        """Lease time by device, of those that are over too."""
        found = dict.fromkeys(self.a.devices, 0) | self.ended
        for uuid, used in self.usages():
            found[uuid] += used.lease_ns
        return found

    def close(self, tenant: int) -> None:
        for uuid, used in self.a.usage(tenant, self.now).items():
            self.ended[uuid] = self.ended.get(uuid, 0) + used.lease_ns
            self.check(used)
        super().close(tenant)

    def start_again(self) -> None:
        """Books of a new daemon: what it was told that tenants had before is no time of its."""
        self.of, self.begin_at, self.before, self.begin = self.a, self.now, self.now, self.leased()
        self.idle = dict.fromkeys(self.a.devices, 0)
        self.slack = {uuid: _lost(device) for uuid, device in self.a.devices.items()}

    def book(self, now: int, *_: object) -> None:
        if self.of is not self.a:
            self.start_again()
        for uuid, device in self.a.devices.items():
            if uuid in self.empty:
                self.idle[uuid] += now - self.before
            self.slack[uuid] += _lost(device)
        self.before = now
        self.empty = {uuid for uuid, device in self.a.devices.items() if not device.holders}
        self.events += 1
        if self.events % EACH == 0:
            self.add_up(now)

    def add_up(self, now: int) -> None:
        leased = self.leased()
        wall = now - self.begin_at
        for uuid in self.a.devices:
            had = leased[uuid] - self.begin[uuid] + self.idle[uuid]
            if abs(wall - had) > self.slack[uuid]:
                self.judge.broken(f"{uuid}: {had} ns are leased or idle of {wall}")

    def check(self, used: Usage) -> None:
        """One tenant's figures, of one device, against each other."""
        self.given += used.energy_mj
        self.counted |= {name for name, amount in asdict(used).items() if amount}
        in_order = (
            used.busy_ns <= used.measured_ns <= used.lease_ns <= used.time_ns,
            used.lease_ns + used.wait_ns <= used.time_ns,
            used.idle_resident_ns <= used.time_ns,
            used.peak_resident_bytes * used.time_ns >= used.resident_kib_ms,
        )
        if not all(in_order):
            self.judge.broken(f"{used} is not in order: {in_order}")


def _lost(device: Device) -> int:
    """ns that a division among its holders can lose; none where one has it alone."""
    return max(0, len(device.holders) - 1)


@pytest.mark.parametrize("name", policy.names())
@pytest.mark.parametrize("draw", [random_scenario, *long([any_scenario])])
def test_leases_and_idle_time_are_the_clock(name: str, draw: Callable[[int], Scenario]) -> None:
    """Over any interval, and with energy no more is given than was taken."""
    for seed in SEEDS:
        books = Books(draw(seed), name)
        try:
            books.run()
        except Broken as fault:
            pytest.fail(f"seed {seed}: {fault}")
        assert books.given <= books.taken


def test_every_figure_is_counted_somewhere() -> None:
    """The adversary's jobs cause all but two, which are reported from outside."""
    books = Books(random_scenario(0))
    books.run()
    a = Arbiter({"d0": 1000}, policy.make)
    a.handle(Opened(0, ("d0",), "auto", 10**9, swaps=True), 0)
    a.handle(LeftUncopied(0, "d0", 10), 1)
    a.handle(StraySeen(0, "d0"), 1)
    books.check(a.usage(0, 1)["d0"])
    assert books.counted == asdict(Usage()).keys()

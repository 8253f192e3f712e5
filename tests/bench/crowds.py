"""How long the arbiter takes for an event with many tenants that always want their devices.

Processor time is measured, and of several repetitions the best counts: other work on the machine
makes each of them slower, and none faster. tests/bench/calibration.py says how fast the machine is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from leased import policy
from leased.core.arbiter import (
    Action,
    Arbiter,
    Event,
    Evict,
    Grant,
    MemoryChanged,
    Opened,
    PolicySet,
    Preload,
    Released,
    Requested,
    Restored,
    Revoke,
    Tick,
)

S = 1_000_000_000
GIB = 1 << 30
TENANTS, TIMED = 1000, 6000
REPETITIONS = 2
LOCKS = ("on", "auto", "off")


class Member(NamedTuple):
    """One tenant. gang: numbers of devices; size: GiB of a device of 100. request, limit: of its
    devices' time."""

    gang: tuple[int, ...]
    lock: str
    size: int = 60
    swaps: bool = False
    request: float = 0.0
    limit: float = 1.0


class Crowd:
    """Tenants that always want their devices, and how long the arbiter takes for each event."""

    def __init__(self, members: Iterable[Member], policy_name: str):
        self.members = list(members)
        devices = 1 + max(max(member.gang) for member in self.members)
        self.a = Arbiter({f"d{n}": 100 * GIB for n in range(devices)}, policy.make)
        for uuid in self.a.devices:
            self.a.handle(PolicySet(uuid, policy_name), 0)
        self.now = 0
        self.took: list[int] = []
        for tenant, member in enumerate(self.members):
            uuids = tuple(f"d{n}" for n in member.gang)
            opened = Opened(
                *(tenant, uuids, member.lock, S, member.swaps),
                request=member.request,
                limit=member.limit,
            )
            self.a.handle(opened, 0)
            self.say(tenant, 0)

    def say(self, tenant: int, resident: int) -> list[Action]:
        """The tenant says what memory it has."""
        actions = []
        member = self.members[tenant]
        for n in member.gang:
            said = resident if member.swaps else None
            actions += self.do(MemoryChanged(tenant, f"d{n}", member.size * GIB, 0, said))
        return actions

    def do(self, event: Event) -> list[Action]:
        start = time.process_time_ns()
        actions = self.a.handle(event, self.now)
        self.a.next_deadline()
        self.took.append(time.process_time_ns() - start)
        return actions

    def answer(self, action: Action) -> list[Action]:
        """What the tenant says to this, and what follows from that."""
        if isinstance(action, Revoke):
            return [
                *self.do(Released(action.tenant, action.epoch)),
                *self.do(Requested(action.tenant)),
            ]
        if isinstance(action, Grant) and self.members[action.tenant].swaps:
            follows = self.say(action.tenant, self.members[action.tenant].size * GIB)
            return [*follows, *self.do(Restored(action.tenant, action.epoch))]
        if isinstance(action, Evict | Preload):
            size = self.members[action.tenant].size * GIB
            resident = size if isinstance(action, Preload) else size - action.bytes
            return self.do(MemoryChanged(action.tenant, action.device, size, 0, resident))
        return []

    def measure(self, events: int = TIMED) -> float:
        """Mean microseconds of so many events, after all have asked."""
        todo = [x for tenant in list(self.a.tenants) for x in self.do(Requested(tenant))]
        self.took.clear()
        while len(self.took) < events:
            while todo and len(self.took) < events:
                todo += self.answer(todo.pop(0))
            due = self.a.next_deadline()
            assert due is not None, "somebody always waits"
            self.now = max(self.now, due)
            todo += self.do(Tick())
        return round(sum(self.took) / len(self.took) / 1000, 1)


def any_gangs(devices: int, most: int, **other: object) -> list[Member]:
    """Gangs of any size up to `most`, with any lock where no other is said."""
    r = random.Random(devices)
    gangs = (r.sample(range(devices), r.randint(1, most)) for _ in range(TENANTS))
    return [
        Member(tuple(sorted(gang)), **({"lock": r.choice(LOCKS)} | other))  # type: ignore[arg-type]
        for gang in gangs
    ]


def _nearly_all_fit(devices: int, most: int, each: int) -> list[Member]:
    """Gangs without memory of which three in four share, but for one in so many."""
    return [
        Member(m.gang, ("on", "auto", "auto", "auto")[n % 4], 0 if n % each else 60)
        for n, m in enumerate(any_gangs(devices, most))
    ]


def _nearly_everywhere(devices: int, but: int) -> list[Member]:
    """Gangs without memory that leave out so many of the devices, each others. All share, but for
    one in 500."""
    r = random.Random(devices)
    left_out = (set(r.sample(range(devices), but)) for _ in range(TENANTS))
    gangs = (tuple(n for n in range(devices) if n not in out) for out in left_out)
    return [Member(gang, "auto", 0 if n % 500 else 60) for n, gang in enumerate(gangs)]


def _with_share(n: int, member: Member) -> Member:
    """Every second one requests a thousandth, and others may have from a tenth on to all."""
    limit = (0.1, 0.3, 1.0)[n % 3]
    return member._replace(request=0.001 * (n % 2), limit=limit, size=10, lock="auto")


EVERYWHERE = tuple(range(8))
CROWDS: dict[str, Callable[[], list[Member]]] = {
    "ordinary_1000": lambda: [Member((0,), "on") for _ in range(TENANTS)],
    "half_lock_off_1000": lambda: [Member((0,), ("on", "off")[n % 2]) for n in range(TENANTS)],
    "gangs_1000": lambda: [Member(EVERYWHERE, "on") for _ in range(TENANTS)],
}
MIXES: dict[str, Callable[[], list[Member]]] = {
    "any_gangs_and_locks": lambda: any_gangs(8, 8),
    "small_gangs_of_8": lambda: any_gangs(8, 2),
    "gangs_of_16": lambda: any_gangs(16, 16),
    "gangs_of_64": lambda: any_gangs(64, 64),
    "gangs_of_60_of_64": lambda: [
        m._replace(lock=LOCKS[n % 3], size=60) for n, m in enumerate(_nearly_everywhere(64, 4))
    ],
    "small_gangs_of_64": lambda: any_gangs(64, 3),
    "all_fit": lambda: [
        Member(m.gang, ("on", "auto", "auto", "auto")[n % 4], 0)
        for n, m in enumerate(any_gangs(16, 16))
    ],
    "all_fit_few_locked": lambda: [
        Member(m.gang, "auto" if n % 100 else "on", 0) for n, m in enumerate(any_gangs(16, 16))
    ],
    "all_fit_small_of_64": lambda: [
        Member(m.gang, ("on", "auto", "auto", "auto")[n % 4], 0)
        for n, m in enumerate(any_gangs(64, 3))
    ],
    "nearly_all_fit_of_16": lambda: _nearly_all_fit(16, 16, 50),
    "nearly_all_fit_of_64": lambda: _nearly_all_fit(64, 64, 500),
    "nearly_all_fit_60_of_64": lambda: _nearly_everywhere(64, 4),
    "nearly_all_fit_small_of_64": lambda: _nearly_all_fit(64, 3, 500),
    "few_locked": lambda: [
        Member(m.gang, "off" if n % 16 else "on") for n, m in enumerate(any_gangs(16, 16))
    ],
    "all_swap": lambda: any_gangs(8, 8, swaps=True),
    "some_swap_of_32": lambda: [
        Member(m.gang if n % 5 == 0 else m.gang[:2], m.lock, 60 if n % 4 else 1, n % 2 == 0)
        for n, m in enumerate(any_gangs(32, 32))
    ],
    "swap_on_one": lambda: [Member((0,), "auto", 60, swaps=True) for _ in range(TENANTS)],
    "shares_of_gangs": lambda: [_with_share(n, m) for n, m in enumerate(any_gangs(16, 16))],
    "shares_of_small_of_64": lambda: [_with_share(n, m) for n, m in enumerate(any_gangs(64, 3))],
    "off_beside_shares": lambda: [
        _with_share(n, m) if n % 2 else m._replace(lock="off")
        for n, m in enumerate(any_gangs(8, 4))
    ],
    "two_each_of_500": lambda: [Member((n // 2,), "auto") for n in range(TENANTS)],
    "two_each_pair_of_500": lambda: [
        Member((n // 2, (n // 2 + 1) % 500), "auto") for n in range(TENANTS)
    ],
}


def us_per_event(name: str, crowds: dict[str, Callable[[], list[Member]]]) -> dict[str, float]:
    """Of each crowd, under the policy of that name: the best of several repetitions."""
    return {
        crowd: min(Crowd(members(), name).measure() for _ in range(REPETITIONS))
        for crowd, members in crowds.items()
    }

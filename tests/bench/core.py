"""What the arbiter costs: `make bench NAME=core` writes build/bench/core.json.

us: by policy, and by how many GPUs there are and jobs that always want them, the mean microseconds
of an event. Three in four jobs have one GPU and the others a gang of any size; no two of them fit
together, all have lock:auto, and a quantum is a second. An event is what a job says or a deadline,
with all that follows in the arbiter at once. It is measured in processor time, and of several
repetitions the best counts: other work on the machine makes each of them slower, and none faster.
tests/bench/calibration.py says how fast the machine is.

calls_per_grant, files_per_grant: of the plainest one: one GPU, nobody has it, and a job asks.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from leased import policy
from leased.core.actions import Action, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import Event, MemoryChanged, Opened, PolicySet, Released, Requested, Tick
from tests.bench import write
from tests.bench.calibration import calibrate

S = 1_000_000_000
GIB = 1 << 30
SIZES = {"1x2": (1, 2), "8x16": (8, 16), "8x32": (8, 32), "16x256": (16, 256)}
TIMED = 6000
REPETITIONS = 3
MOST_CALLS, MOST_FILES = 60, 15


class Member(NamedTuple):
    """One tenant. gang: numbers of devices; size: GiB of a device of 100."""

    gang: tuple[int, ...]
    lock: str = "auto"
    size: int = 60
    swaps: bool = False


def members(devices: int, jobs: int) -> list[Member]:
    """Jobs on so many devices, the same ones each time."""
    r, found = random.Random(devices), []
    for n in range(jobs):
        size = r.randint(2, min(devices, 16)) if n % 4 == 3 and devices > 1 else 1
        gang = r.sample(range(devices), size) if size > 1 else [n % devices]
        found.append(Member(tuple(sorted(gang))))
    return found


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
            self.a.handle(Opened(tenant, uuids, member.lock, S, member.swaps), 0)
            for uuid in uuids:
                self.do(MemoryChanged(tenant, uuid, member.size * GIB, 0))

    def do(self, event: Event) -> list[Action]:
        start = time.process_time_ns()
        actions = self.a.handle(event, self.now)
        self.a.next_deadline()
        self.took.append(time.process_time_ns() - start)
        return actions

    def answer(self, action: Action) -> list[Action]:
        """What the tenant says to this, and what follows from that."""
        if not isinstance(action, Revoke):
            return []
        return [*self.do(Released(action.tenant, action.epoch)), *self.do(Requested(action.tenant))]

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


def us(name: str) -> dict[str, float]:
    """Of an event under the policy of that name, by devices x jobs."""
    found: dict[str, float] = {}
    gc.disable()
    for size, (devices, jobs) in SIZES.items():
        crowds = (Crowd(members(devices, jobs), name) for _ in range(REPETITIONS))
        found[size] = min(crowd.measure() for crowd in crowds)
    gc.enable()
    return found


def cost_of_a_grant() -> tuple[int, set[str]]:
    """Calls of Python functions of the plainest grant, and the files in which they are."""
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(Opened(1, ("d0",), "auto", S), 0)
    found: list[str] = []

    def seen(frame: FrameType, kind: str, _: object) -> None:
        if kind == "call" and "/leased/" in frame.f_code.co_filename:
            found.append(frame.f_code.co_filename)

    sys.setprofile(seen)
    try:
        a.handle(Requested(1), S)
        a.next_deadline()
    finally:
        sys.setprofile(None)
    return len(found), set(found)


def us_alone(name: str) -> dict[str, float]:
    """The same in a process of its own, as a daemon has one policy: where another has run before,
    the interpreter has adapted its code to that."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(us, (name,))


def measure(_: Path) -> dict[str, Any]:
    calls, files = cost_of_a_grant()
    return {
        "us": {name: us_alone(name) for name in policy.names()},
        "calls_per_grant": calls,
        "files_per_grant": len(files),
        "calibration_ms": calibrate(),
    }


def main() -> None:
    result = write("core", measure)
    for name, each in result["us"].items():
        print(f"us an event, {name:10}", *(f"{size} {us:>6}" for size, us in each.items()))
    print(f"calls of the plainest grant {result['calls_per_grant']:>5}  <= {MOST_CALLS}")
    print(f"files of the plainest grant {result['files_per_grant']:>5}  <= {MOST_FILES}")
    print(f"calibration, ms of fixed work {result['calibration_ms']:>7}")


if __name__ == "__main__":
    main()

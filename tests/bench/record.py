"""What a record costs the daemon: `make bench NAME=record` writes build/bench/record.json.

The adversary's events go through the arbiter and then through the recorder, and the processor
time of both is taken, so that other work on the machine makes no difference. In this order:

arbiter_us, record_us: for an event; the second is the daemon's part of the record, without the
    write, which another thread does.
bytes: of an event, in the file.
state: by jobs that wait for one GPU, ms for the snapshot that begins another file, and its bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leased import policy
from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event, MemoryChanged, Opened, Requested
from leased.record import lines, snapshot
from leased.record.lines import Header, Start
from leased.record.recorder import Recorder
from tests.bench import write
from tests.core.draws import random_scenario
from tests.core.silent import Silent
from tests.core.world import World
from tests.support.together import zip_strict

SEEDS = range(10)
JOBS = (64, 256, 1000)
MOST = 1 << 30

Taken = list[tuple[int, Event, list[Action]]]


def runs() -> list[tuple[Arbiter, Taken]]:
    """The events of the adversary's runs, each with a new arbiter."""
    found: list[tuple[Arbiter, Taken]] = []
    for seed in SEEDS:
        starts: list[Start] = []
        taken: list[Taken] = []

        def began(arbiter: Arbiter, starts: list[Start] = starts, taken: Any = taken) -> None:
            starts.append(Start.of(arbiter))
            taken.append([])

        def handled(now: int, event: Event, actions: list[Action], taken: Any = taken) -> None:
            taken[-1].append((now, event, actions))

        World(random_scenario(seed), began=began, handled=handled, judge=Silent).run()
        found += [(start.arbiter(), of) for start, of in zip_strict(starts, taken)]
    return found


def spent(clock: Callable[[], int], act: Callable[[], object]) -> int:
    before = clock()
    act()
    return clock() - before


def of_events(work: Path) -> dict[str, float]:
    """Microseconds for an event."""
    arbiter_ns = record_ns = events = size = 0
    for arbiter, taken in runs():
        recorder = Recorder(lambda _: None)
        recorder.configure(work / "record", MOST)
        recorder.attach(arbiter)
        assert recorder.file is not None
        for now, event, _ in taken:
            arbiter_ns += spent(time.thread_time_ns, lambda: arbiter.handle(event, now))  # noqa: B023
        for now, event, actions in taken:
            recorder.take(now, event, actions)
            record_ns += spent(time.thread_time_ns, recorder.flush)
        size += recorder.file.size
        recorder.close()
        events += len(taken)
    each = {"arbiter_us": arbiter_ns, "record_us": record_ns}
    return {
        **{name: round(ns / events / 1000, 1) for name, ns in each.items()},
        "bytes": round(size / events),
        "events": events,
    }


def of_state(jobs: int) -> dict[str, float]:
    arbiter = Arbiter({"GPU-0": 1 << 36}, policy.make)
    for job in range(jobs):
        arbiter.handle(Opened(job, ("GPU-0",), "on", 10**9, job % 2 == 0), 0)
        arbiter.handle(MemoryChanged(job, "GPU-0", 1 << 33, 0, 0 if job % 2 == 0 else None), 0)
        arbiter.handle(Requested(job), 0)
    made: list[bytes] = []

    def take() -> None:
        header = Header("0", 0.0, Start.of(arbiter), snapshot.take(arbiter))
        made.append(lines.header_line(header))

    ns = min(spent(time.thread_time_ns, take) for _ in range(5))
    return {"ms": round(ns / 1e6, 1), "bytes": len(made[0])}


def measure(work: Path) -> dict[str, Any]:
    return of_events(work) | {"state": {str(jobs): of_state(jobs) for jobs in JOBS}}


def main() -> None:
    report = write("record", measure)
    for name, value in report.items():
        print(f"{name:12} {value}")


if __name__ == "__main__":
    main()

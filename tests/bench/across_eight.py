"""64 jobs on 8 nodes, each with its own daemon, network namespace and clock: `real` of `across`.

40 jobs are on 2 to 8 nodes, 24 on one; each has one of its node's two GPUs on each, and a process
there that always wants it (tests/bench/across_ranks.py). At first nothing fails, and what
grants take is measured. Then nodes and links between two of them are cut off for 1 to 6 s, and
daemons die and start again, one thing after the other; in the end each job has to run once more.

grants: how often a job on several nodes had its GPUs on all of them. grant_ms: from when the last
of them was given back to when the last process heard of its lease. skew_ms: between the first and
the last of its processes that heard that it is to stop. Both while nothing failed. half_gangs:
how often a process had its GPU while another job had one of its job's on another node; what ran on
while its node had no daemon does not count. deadlocks: jobs that did not run within WAITS_S in the
end. delay: of a message; "none" is what this machine's own network needs, if it has no netem.
"""

from __future__ import annotations

import bisect
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.across_ranks import GRANTED, RELEASED, REVOKED, rows
from tests.support.lan import Lan
from tests.support.nodes import ROOT, Nodes

NAMES = [f"n{n}" for n in range(8)]
ACROSS, ALONE, GPUS = 40, 24, 2
LIMITS = '[limits]\nquantum_min = "50ms"\ndrain = "1s"\n'
QUIET = 0.5  # part of the grants
WAITS_S = 120.0
LOST_S = 30.0  # more than a daemon's promise lasts

Had = tuple[int, int, int]  # ns: granted, told to stop, released


def draw(seed: int) -> dict[int, list[str]]:
    """The nodes of each job."""
    chance = random.Random(seed)
    several = [chance.sample(NAMES, chance.choice((2, 2, 2, 3, 4, 8))) for _ in range(ACROSS)]
    return dict(enumerate([*several, *([NAMES[n % 8]] for n in range(ALONE))], 1))


class Fleet:
    """nodes that run, and what their jobs have noted so far. down: by node, from when to when its
    daemon was not there, or did not know yet what it had promised."""

    def __init__(self, nodes: Nodes, lan: Lan, logs: Path, jobs: dict[int, list[str]]):
        self.nodes, self.lan, self.logs, self.jobs = nodes, lan, logs, jobs
        self.several = [job for job, on in jobs.items() if len(on) > 1]
        self.down: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.drops = self.deaths = 0

    def start(self) -> None:
        """All jobs on all nodes."""
        for name in NAMES:
            node = self.nodes[name]
            here = {job: on for job, on in self.jobs.items() if name in on}
            jobs = [f"{job}={','.join(on) if len(on) > 1 else ''}" for job, on in here.items()]
            program = "-m", "tests.bench.across_ranks", str(node.leased.run_dir), str(self.logs)
            started = subprocess.Popen(
                [sys.executable, *program, str(GPUS), *jobs],
                cwd=ROOT,
                env=node.leased.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self.nodes.started.append(started)
            assert started.stdout is not None
            for _ in here:
                if not started.stdout.readline():
                    raise RuntimeError(started.communicate()[1])

    def had(self, job: int, name: str) -> list[Had]:
        """When the job had its GPU there."""
        found: list[Had] = []
        granted = revoked = 0
        for what, at in rows(self.logs / f"{job}.{name}"):
            if what == GRANTED:
                granted, revoked = at, 0
            elif what == REVOKED:
                revoked = at
            elif what == RELEASED:
                found.append((granted, revoked, at))
        return found

    def runs(self, job: int) -> list[list[Had]]:
        """When it had them on all of its nodes at once: what it had on each."""
        first, *others = (self.had(job, name) for name in self.jobs[job])
        begins = [[one[0] for one in other] for other in others]
        found = []
        for one in first:
            both = [one]
            for other, begun in zip(others, begins):
                at = bisect.bisect_right(begun, one[2]) - 1
                if at >= 0 and other[at][2] > one[0]:
                    both.append(other[at])
            if len(both) == len(self.jobs[job]):
                found.append(both)
        return found

    def grants(self) -> int:
        return sum(len(self.runs(job)) for job in self.several)

    # -- what fails ---------------------------------------------------------------------------

    def trouble(self, chance: random.Random) -> None:
        """One thing fails for a while."""
        name, other = chance.sample(NAMES, 2)
        which, lasts_s = chance.randrange(3), chance.uniform(1, 6)
        if which == 0:
            self.deaths += 1
            begun = time.monotonic_ns()
            self.nodes[name].leased.kill()
            time.sleep(lasts_s / 10)
            self.nodes[name].leased.start()
            self.down[name].append((begun, time.monotonic_ns() + int(LOST_S * 1e9)))
            return
        self.drops += 1
        with self.lan.cut(name) if which == 1 else self.lan.parted(name, other):
            time.sleep(lasts_s)

    # -- what is measured -----------------------------------------------------------------------

    def grant_ns(self) -> Iterator[int]:
        """From when the last GPU of a job was free to when it ran on all of its nodes."""
        free: dict[tuple[str, int], list[int]] = defaultdict(list)
        for job, on in self.jobs.items():
            for name in on:
                free[name, job % GPUS] += [one[2] for one in self.had(job, name)]
        for times in free.values():
            times.sort()
        for job in self.several:
            for run in self.runs(job):
                last = max(one[0] for one in run)
                before = [
                    times[at - 1]
                    for name, one in zip(self.jobs[job], run)
                    for times in [free[name, job % GPUS]]
                    if (at := bisect.bisect_left(times, one[0]))
                ]
                if before:
                    yield last - max(before)

    def skew_ns(self) -> Iterator[int]:
        for job in self.several:
            for run in self.runs(job):
                yield max(one[1] for one in run) - min(one[1] for one in run)

    def half_gangs(self) -> int:
        """How often something of a job ran beside another job on another of its nodes."""
        all_had = {(job, name): self.had(job, name) for job, on in self.jobs.items() for name in on}
        users: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for (job, name), found in all_had.items():
            users[name, job % GPUS] += [(start, end, job) for start, _, end in found]
        for spans in users.values():
            spans.sort()
        return sum(
            self._beside(users[other, job % GPUS], job, one)
            for job in self.several
            for name in self.jobs[job]
            for one in all_had[job, name]
            if not self._was_alone(name, one)
            for other in self.jobs[job]
            # A step that begins there later has no part in what ran before.
            if other != name and one > min(all_had[job, other], default=one)
        )

    def _beside(self, spans: list[tuple[int, int, int]], job: int, one: Had) -> int:
        """How many others had the GPU at the same time."""
        first = max(0, bisect.bisect_left(spans, (one[0], 0, 0)) - 2)
        count = 0
        for start, end, whose in spans[first:]:
            if start >= one[2]:
                break
            count += whose != job and end > one[0]
        return count

    def _was_alone(self, name: str, one: Had) -> bool:
        """Its node had no daemon at some time."""
        return any(start < one[2] and one[0] < end for start, end in self.down[name])


def part(values: list[int], of_all: float) -> float:
    return round(sorted(values)[int(of_all * (len(values) - 1))] / 1e6, 3)


def measure(place: Path, munge: Path, grants: int, seed: int = 1) -> dict[str, Any]:
    chance = random.Random(seed)
    clocks = {name: chance.randrange(1, 1200) for name in NAMES}
    jobs, logs = draw(seed), place / "logs"
    logs.mkdir(parents=True)
    with ExitStack() as stack:
        lan = stack.enter_context(Lan(clocks))
        nodes = stack.enter_context(Nodes(place, NAMES, munge, LIMITS, lan=lan, gpus=GPUS))
        fleet = Fleet(nodes, lan, logs, jobs)
        begun = time.monotonic()
        fleet.start()
        started = time.monotonic()
        while fleet.grants() < QUIET * grants:
            time.sleep(1)
        quiet = {
            "started_s": round(started - begun, 1),
            "grants_s": round(fleet.grants() / (time.monotonic() - started), 1),
            "grant_ms_p50": part(list(fleet.grant_ns()), 0.5),
            "grant_ms_p99": part(list(fleet.grant_ns()), 0.99),
            "skew_ms_p50": part(list(fleet.skew_ns()), 0.5),
            "skew_ms_p99": part(list(fleet.skew_ns()), 0.99),
        }
        while fleet.grants() < grants:
            fleet.trouble(chance)
        calm, late = time.monotonic_ns(), set(fleet.several)
        while late and time.monotonic_ns() < calm + WAITS_S * 1e9:
            late = {job for job in late if not any(run[0][0] > calm for run in fleet.runs(job))}
            time.sleep(0.5)
        return {
            "grants": fleet.grants(),
            "half_gangs": fleet.half_gangs(),
            "deadlocks": len(late),
            **quiet,
            "link_drops": fleet.drops,
            "daemon_deaths": fleet.deaths,
            "delay": lan.delay,
            "nodes": len(NAMES),
            "jobs": len(jobs),
        }

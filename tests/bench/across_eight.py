"""64 jobs on 8 nodes, each with its own daemon, network namespace and clock: `real` of `across`.

40 jobs are on 2 to 8 nodes, 24 on one; each has one of its node's two GPUs on each, and a process
there that always wants it (tests/bench/across_ranks.py). At first nothing fails, and what
grants take is measured. Then nodes and links between two of them are cut off for 1 to 6 s, and
daemons die and start again, one thing after the other; in the end each job has to run once more.

grants: how often a job on several nodes had its GPUs on all of them. grant_ms: from when the last
of them was given back to when the last process heard of its lease. skew_ms: between the first and
the last of its processes that heard that it is to stop. Both while nothing failed. half_gangs:
how often a process had its GPU while another job had one of its job's on another node; what ran on
after its daemon was killed does not count. overlaps: how often two jobs had one GPU. Of each of
both, build/bench/across_evidence.json tells what was done around it. deadlocks: jobs that did not
run within WAITS_S in the end. daemons_cpu_ms, daemons_wait_ms: for each grant while nothing failed,
how long all daemons computed (for the jobs of one node too), and how long they were ready to and
had no processor. delay: of a message; "none" is what this machine's own network needs,
if it has no netem.
"""

from __future__ import annotations

import bisect
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import across_evidence
from tests.bench.across_evidence import Scene, Trouble
from tests.bench.across_nodes import of_daemons
from tests.bench.across_simulated import part
from tests.bench.across_spans import NOT_YET, Down, Had, Log, Place, broken, read_all
from tests.support.lan import Lan
from tests.support.nodes import ROOT, Nodes
from tests.support.together import zip_strict

NAMES = [f"n{n}" for n in range(8)]
ACROSS, ALONE, GPUS = 40, 24, 2
LIMITS = '[limits]\nquantum_min = "50ms"\ndrain = "1s"\n'
QUIET = 0.5  # part of the grants
WAITS_S = 120.0


def draw(seed: int) -> dict[int, list[str]]:
    """The nodes of each job."""
    chance = random.Random(seed)
    several = [chance.sample(NAMES, chance.choice((2, 2, 2, 3, 4, 8))) for _ in range(ACROSS)]
    return dict(enumerate([*several, *([NAMES[n % 8]] for n in range(ALONE))], 1))


class Fleet:
    """nodes that run, and what their jobs have noted so far. down: by node, when its daemon was not
    there. troubles: all that has failed."""

    def __init__(self, nodes: Nodes, lan: Lan, logs: Path, jobs: dict[int, list[str]]):
        self.nodes, self.lan, self.logs, self.jobs = nodes, lan, logs, jobs
        self.several = [job for job, on in jobs.items() if len(on) > 1]
        self.of_ranks = {(job, on): Log(logs / f"{job}.{on}") for job in jobs for on in jobs[job]}
        self.down: defaultdict[str, list[Down]] = defaultdict(list)
        self.troubles: list[Trouble] = []

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

    def all_had(self) -> dict[Place, Sequence[Had]]:
        """When each job had its GPU on each node."""
        return read_all(self.of_ranks)

    def runs(self, job: int, all_had: Mapping[Place, Sequence[Had]]) -> list[list[Had]]:
        """When it had them on all of its nodes at once, and is over: what it had on each."""
        first, *others = (all_had[job, name] for name in self.jobs[job])
        found = []
        for one in first:
            both = [one]
            for other in others:
                at = bisect.bisect_left(other, (one.released, 0, 0)) - 1
                if at >= 0 and other[at].released > one.granted:
                    both.append(other[at])
            if len(both) == len(self.jobs[job]) and all(had.released < NOT_YET for had in both):
                found.append(both)
        return found

    def all_runs(self) -> dict[int, list[list[Had]]]:
        all_had = self.all_had()
        return {job: self.runs(job, all_had) for job in self.several}

    def grants(self) -> int:
        return sum(map(len, self.all_runs().values()))

    # -- what fails ---------------------------------------------------------------------------

    def trouble(self, chance: random.Random) -> None:
        """One thing fails for a while."""
        name, other = chance.sample(NAMES, 2)
        which, lasts_s = chance.randrange(3), chance.uniform(1, 6)
        begun = time.monotonic_ns()
        if which == 0:
            self.nodes[name].leased.kill()
            time.sleep(lasts_s / 10)
            self.nodes[name].leased.start()
            self.down[name].append((begun, time.monotonic_ns()))
        else:
            with self.lan.cut(name) if which == 1 else self.lan.parted(name, other):
                time.sleep(lasts_s)
        what = ("its daemon is killed", "it is cut off", f"it and {other} are parted")[which]
        self.troubles.append(Trouble(name, what, begun, time.monotonic_ns()))

    # -- what is measured -----------------------------------------------------------------------

    def grant_ns(self) -> Iterator[int]:
        """From when the last GPU of a job was free to when it ran on all of its nodes."""
        free: dict[tuple[str, int], list[int]] = defaultdict(list)
        for (job, name), had in self.all_had().items():
            free[name, job % GPUS] += [one.released for one in had]
        for times in free.values():
            times.sort()
        for job, runs in self.all_runs().items():
            for run in runs:
                last = max(one.granted for one in run)
                before = [
                    times[at - 1]
                    for name, one in zip(self.jobs[job], run)
                    for times in [free[name, job % GPUS]]
                    if (at := bisect.bisect_left(times, one.granted))
                ]
                if before:
                    yield last - max(before)

    def skew_ns(self) -> Iterator[int]:
        for runs in self.all_runs().values():
            for run in runs:
                yield max(one.revoked for one in run) - min(one.revoked for one in run)


def quiet(fleet: Fleet, grants: int) -> dict[str, Any]:
    """What so many grants take while nothing fails."""
    begun, at_first = time.monotonic(), of_daemons(fleet.nodes)
    while (granted := fleet.grants()) < grants:
        time.sleep(1)
    spent = [later - at for at, later in zip_strict(at_first, of_daemons(fleet.nodes))]
    grant_ns, skew_ns = list(fleet.grant_ns()), list(fleet.skew_ns())
    return {
        "grants_s": round(granted / (time.monotonic() - begun), 1),
        "grant_ms_p50": part(grant_ns, 0.5),
        "grant_ms_p99": part(grant_ns, 0.99),
        "skew_ms_p50": part(skew_ns, 0.5),
        "skew_ms_p99": part(skew_ns, 0.99),
        "daemons_cpu_ms": round(spent[0] / granted, 2),
        "daemons_wait_ms": round(spent[1] / granted, 2),
    }


def deadlocks(fleet: Fleet) -> int:
    """Jobs that do not run within WAITS_S from now on, as nothing fails any more."""
    calm, late = time.monotonic_ns(), set(fleet.several)
    while late and time.monotonic_ns() < calm + WAITS_S * 1e9:
        runs = fleet.all_runs()
        late = {job for job in late if not any(run[0].granted > calm for run in runs[job])}
        time.sleep(0.5)
    return len(late)


def measure(place: Path, munge: Path, grants: int, proof: Path, seed: int = 1) -> dict[str, Any]:
    """proof: where evidence is written if there are half gangs or overlaps."""
    chance = random.Random(seed)
    clocks = {name: chance.randrange(1, 1200) for name in NAMES}
    jobs, logs = draw(seed), place / "logs"
    logs.mkdir(parents=True)
    with ExitStack() as stack:
        lan = stack.enter_context(Lan(clocks))
        nodes = Nodes(place, NAMES, munge, LIMITS, lan=lan, gpus=GPUS, traced=True)
        fleet = Fleet(stack.enter_context(nodes), lan, logs, jobs)
        fleet.start()
        measured = quiet(fleet, int(QUIET * grants))
        while fleet.grants() < grants:
            fleet.trouble(chance)
        stuck = deadlocks(fleet)
        all_had = fleet.all_had()
        found = list(broken(jobs, GPUS, all_had, fleet.down))
        scene = Scene(jobs, all_had, fleet.troubles, fleet.down, nodes, clocks)
        across_evidence.write(proof, found, scene)
        deaths = sum(map(len, fleet.down.values()))
        overlaps = sum(each.is_overlap() for each in found)
        return {
            "grants": fleet.grants(),
            "half_gangs": len(found) - overlaps,
            "overlaps": overlaps,
            "deadlocks": stuck,
            **measured,
            "link_drops": len(fleet.troubles) - deaths,
            "daemon_deaths": deaths,
            "delay": lan.delay,
            "nodes": len(NAMES),
            "jobs": len(jobs),
        }

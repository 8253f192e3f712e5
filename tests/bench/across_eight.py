"""64 jobs on 8 nodes, each with its own daemon, network namespace and clock: `real` of `across`.

40 jobs are on 2 to 8 nodes, 24 on one; each has one of its node's two GPUs on each, and a process
there that always wants it (tests/bench/across_ranks.py). Half of the grants are `calm`: nothing
fails, turns take 0.4 s, the daemons are as at a site, and what grants take is measured. The others
are hard: turns of 50 ms and daemons that write down all they do, while nodes and links between two
of them are cut off for 1 to 6 s, and daemons die and start again, one thing after the other; in
the end each job has to run once more.

grants: how often a job on several nodes had its GPUs on all of them. half_gangs: how often a
process had its GPU while another job had one of its job's on another node; what ran on after its
daemon was killed does not count. overlaps: how often two jobs had one GPU. Of each of both,
build/bench/across_evidence.json tells what was done around it. deadlocks: jobs that did not run
within WAITS_S in the end. delay: of a message; "none" is what this machine's own network needs, if
it has no netem.

Of the calm ones, once each job has run: grant_ms: from when the last of a job's GPUs was free to
when the last of its processes heard of its lease; those that a job on several nodes had are free
when it has given back all of them. skew_ms: between the first and the last of its processes that
heard that it is to stop. All nodes' daemons and processes share this machine's cores, so both are
told twice. As they were; and `free_` without the time in which a process of the job, or a daemon
of a node of it or of those that had its GPUs before, was ready to compute and had no processor:
the kernel counts that for each of them, and of what several waited at once it is taken off once.
What others did meanwhile is taken off with it, so the truth about nodes that have a free core is
between the two. daemons_cpu_ms, daemons_wait_ms: for each grant, how long all daemons computed
(for the jobs of one node too), and were ready to and had no processor. cores_busy: of this
machine's, what was computed meanwhile by anybody. Nothing of it is on this machine's disk, as
/run of a node is not.
"""

from __future__ import annotations

import bisect
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import across_evidence
from tests.bench.across_evidence import Scene, Trouble
from tests.bench.across_nodes import of_daemons
from tests.bench.across_simulated import part
from tests.bench.across_spans import NOT_YET, Broken, Down, Had, Log, Place, broken, read_all
from tests.bench.processor_waits import Span, covered, spans
from tests.support.lan import Lan
from tests.support.nodes import ROOT, Nodes
from tests.support.together import zip_strict

NAMES = [f"n{n}" for n in range(8)]
ACROSS, ALONE, GPUS = 40, 24, 2
LIMITS = '[limits]\nquantum_min = "50ms"\ndrain = "1s"\n'
CALM = 0.5  # part of the grants
CALM_TURN, HARD_TURN = "400ms", "50ms"
WAITS_S = 120.0
S = 1_000_000_000
LONGEST = 10 * S  # that a daemon has waited at once for a processor


def draw(seed: int) -> dict[int, list[str]]:
    """The nodes of each job."""
    chance = random.Random(seed)
    several = [chance.sample(NAMES, chance.choice((2, 2, 2, 3, 4, 8))) for _ in range(ACROSS)]
    return dict(enumerate([*several, *([NAMES[n % 8]] for n in range(ALONE))], 1))


class Fleet:
    """nodes that run, and what their jobs have noted so far. turn: of each job. down: by node, when
    its daemon was not there. troubles: all that has failed."""

    def __init__(self, nodes: Nodes, lan: Lan, logs: Path, jobs: dict[int, list[str]], turn: str):
        self.nodes, self.lan, self.logs, self.jobs = nodes, lan, logs, jobs
        self.turn = turn
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
                [sys.executable, *program, str(GPUS), self.turn, *jobs],
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

    def broken(self) -> list[Broken]:
        """What must not have been."""
        return list(broken(self.jobs, GPUS, self.all_had(), self.down))

    def scene(self) -> Scene:
        """For who tells of it."""
        had, clocks = self.all_had(), self.lan.clocks
        return Scene(self.jobs, had, self.troubles, self.down, self.nodes, clocks)


# -- what is measured -------------------------------------------------------------------------


class Took(NamedTuple):
    """ns: of a step of some processes. free_ns: without what they waited for a processor."""

    ns: int
    free_ns: int


class Freed(NamedTuple):
    """at: when a GPU was free. late: how long it took the process to say so without a processor.
    job: which had it."""

    at: int
    late: int
    job: int


class Measured:
    """What a fleet has done since each of its jobs has run, while nothing failed. free: by GPU,
    when it was free, and of which job, in order."""

    def __init__(self, fleet: Fleet):
        self.jobs, self.runs = fleet.jobs, fleet.all_runs()
        self.warm = max(runs[0][0].granted for runs in self.runs.values())
        self.waits = {
            name: sorted(spans(fleet.nodes[name].waits, ahead * S))
            for name, ahead in fleet.lan.clocks.items()
        }
        last = {
            (job, name, one.granted): max(run, key=lambda each: each.released)
            for job, runs in self.runs.items()
            for run in runs
            for name, one in zip_strict(self.jobs[job], run)
        }
        self.free: dict[tuple[str, int], list[Freed]] = defaultdict(list)
        for (job, name), had in fleet.all_had().items():
            of_last = (last.get((job, name, one.granted), one) for one in had)
            self.free[name, job % GPUS] += [
                Freed(one.released, one.released_late, job) for one in of_last
            ]
        for times in self.free.values():
            times.sort()

    def waited(self, nodes: Iterable[str], within: Span) -> Iterator[Span]:
        """When their daemons had no processor."""
        for name in set(nodes):
            waits = self.waits[name]
            first = bisect.bisect_left(waits, (within[0] - LONGEST, 0))
            yield from waits[first : bisect.bisect_right(waits, (within[1], 0))]

    def before(self, job: int, run: Sequence[Had]) -> Iterator[Freed]:
        """When each of its GPUs had become free."""
        for name, one in zip_strict(self.jobs[job], run):
            times = self.free[name, job % GPUS]
            if at := bisect.bisect_left(times, (one.granted,)):
                yield times[at - 1]

    def grants(self) -> Iterator[Took]:
        """From when the last GPU of a job was free to when it ran on all of its nodes."""
        for job, runs in self.runs.items():
            for run in runs:
                before = list(self.before(job, run))
                if before and max(before).at > self.warm:
                    within = max(before).at, max(one.granted for one in run)
                    late = [(one.told, one.granted) for one in run if one.granted == within[1]]
                    late += [(freed.at, freed.at + freed.late) for freed in before]
                    who = [job, *(freed.job for freed in before)]
                    daemons = self.waited((n for each in who for n in self.jobs[each]), within)
                    waited = covered(within, [*late, *daemons])
                    yield Took(within[1] - within[0], within[1] - within[0] - waited)

    def skews(self) -> Iterator[Took]:
        """From when the first of its processes is told to stop to when the last one is."""
        for job, runs in self.runs.items():
            for run in runs:
                if min(one.granted for one in run) > self.warm:
                    revoked = [one.revoked for one in run]
                    told = [one.told_to_stop for one in run]
                    within = min(told), max(told)
                    waited = covered(within, self.waited(self.jobs[job], within))
                    yield Took(max(revoked) - min(revoked), within[1] - within[0] - waited)


def calm(fleet: Fleet, grants: int) -> dict[str, Any]:
    """What so many grants take while nothing fails."""
    while not all(fleet.all_runs().values()):
        time.sleep(1)
    begun, at_first, busy = time.monotonic(), of_daemons(fleet.nodes), cores_ns()
    warm = fleet.grants()
    while (granted := fleet.grants() - warm) < grants:
        time.sleep(1)
    took_s, busy = time.monotonic() - begun, cores_ns() - busy
    spent = [later - at for at, later in zip_strict(at_first, of_daemons(fleet.nodes))]
    measured = Measured(fleet)
    figures: dict[str, Any] = {}
    for name, found in ("grant", measured.grants()), ("skew", measured.skews()):
        whole, free = zip(*found)
        for kind, all_ns in (name, list(whole)), (f"free_{name}", list(free)):
            figures |= {f"{kind}_ms_p{n}": part(all_ns, n / 100) for n in (50, 99)}
    return {
        "grants_s": round(granted / took_s, 1),
        **figures,
        "daemons_cpu_ms": round(spent[0] / granted, 2),
        "daemons_wait_ms": round(spent[1] / granted, 2),
        "cores_busy": round(busy / took_s / 1e9, 2),
    }


def cores_ns() -> int:
    """How long this machine's cores have computed, all together."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) * (S // os.sysconf("SC_CLK_TCK"))


def deadlocks(fleet: Fleet) -> int:
    """Jobs that do not run within WAITS_S from now on, as nothing fails any more."""
    calm, late = time.monotonic_ns(), set(fleet.several)
    while late and time.monotonic_ns() < calm + WAITS_S * 1e9:
        runs = fleet.all_runs()
        late = {job for job in late if not any(run[0].granted > calm for run in runs[job])}
        time.sleep(0.5)
    return len(late)


@contextmanager
def in_memory(place: Path) -> Iterator[None]:
    """So that nobody waits for this machine's disk."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tests", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def fleet(
    place: Path, munge: Path, jobs: dict[int, list[str]], turn: str, **daemons: bool
) -> Iterator[Fleet]:
    """Nodes of which nothing has failed yet, with all jobs. daemons: what they are, as of Nodes."""
    chance = random.Random(len(turn))
    clocks, logs = {name: chance.randrange(1, 1200) for name in NAMES}, place / "logs"
    with ExitStack() as stack:
        stack.enter_context(in_memory(place))
        logs.mkdir()
        lan = stack.enter_context(Lan(clocks))
        nodes = Nodes(place, NAMES, munge, LIMITS, lan=lan, gpus=GPUS, **daemons)
        made = Fleet(stack.enter_context(nodes), lan, logs, jobs, turn)
        made.start()
        yield made


def measure(place: Path, munge: Path, grants: int, proof: Path, seed: int = 1) -> dict[str, Any]:
    """proof: where evidence is written if there are half gangs or overlaps."""
    chance, jobs, wanted = random.Random(seed), draw(seed), int(CALM * grants)
    with fleet(place / "calm", munge, jobs, CALM_TURN, timed=True) as at_ease:
        measured = calm(at_ease, wanted)
        had, found, delay = at_ease.grants(), at_ease.broken(), at_ease.lan.delay
        across_evidence.write(proof, found, at_ease.scene())
    with fleet(place / "hard", munge, jobs, HARD_TURN, traced=True) as hard:
        while hard.grants() < grants - wanted:
            hard.trouble(chance)
        stuck = deadlocks(hard)
        more = hard.broken()
        if more or not found:
            across_evidence.write(proof, more, hard.scene())
        had, found = had + hard.grants(), found + more
        deaths, failed = sum(map(len, hard.down.values())), len(hard.troubles)
    overlaps = sum(each.is_overlap() for each in found)
    return {
        "grants": had,
        "half_gangs": len(found) - overlaps,
        "overlaps": overlaps,
        "deadlocks": stuck,
        **measured,
        "link_drops": failed - deaths,
        "daemon_deaths": deaths,
        "delay": delay,
        "nodes": len(NAMES),
        "jobs": len(jobs),
    }

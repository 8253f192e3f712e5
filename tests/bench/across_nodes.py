"""Jobs on two nodes with real daemons, which have the priority that their unit gives them, real
processes and emulated GPUs, on loopback.

grants: how often one of two jobs that always want their GPUs began on both nodes. grant_ms: from
when the last process of the one computed to when the last one of the other did: a handoff, with
stopping in mid-kernel and what the daemons say to each other. skew_ms: between the ends of a job's
turn on its nodes. half_gangs_ms: for how long a job computed on one node and the other one on
another. rl_pair_speedup: two jobs whose processes use their GPUs half of the time and then meet,
as reinforcement learning does: how much sooner both are done together than one after the other.
daemons_cpu_ms, daemons_wait_ms: for each grant, how long both daemons computed, and how long they
were ready to and had no processor: what a machine that others use adds to the times above.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.nodes import Nodes, overlap_ns
from tests.support.programs import SET_UP, line, output, tell
from tests.support.together import pairwise, zip_strict

A_B = ("a", "b")
TURN_S = 0.1
ALWAYS = (
    SET_UP
    + """
import select
say(os.getpid()); sys.stdin.readline()
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(5): ok(spin(1_000_000))
    ok(d.cuCtxSynchronize())
"""
)
# Each round: the GPU for 0.2 s, then the CPU for as long, then all processes meet.
HALF = (
    SET_UP
    + """
import socket, time
path, rounds, first = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "a"
sock = socket.socket(socket.AF_UNIX)
if first:
    sock.bind(path); sock.listen(1); say("listens"); other = sock.accept()[0]
else:
    sys.stdin.readline(); sock.connect(path); say("connected"); other = sock
sys.stdin.readline()
for _ in range(rounds):
    for _ in range(20): ok(spin(10_000_000))
    ok(d.cuCtxSynchronize())
    time.sleep(0.2)
    other.sendall(b"x"); assert other.recv(1)
"""
)
ROUNDS = 20
HALVES = (1, 10), (2, 20), (1, 30)  # how many jobs at once, and the number of the first

Turn = tuple[int, int]  # from, to: ns


def turns(of_jobs: dict[int, list[Turn]]) -> Iterator[tuple[int, Turn]]:
    """Whose turn it was on a node, and when: from its first work to its last before another's.
    of_jobs: when each computed there."""
    slices = sorted((start, end, job) for job, had in of_jobs.items() for start, end in had)
    for job, group in itertools.groupby(slices, lambda one: one[2]):
        found = list(group)
        yield job, (found[0][0], found[-1][1])


def part(values: list[float], of_all: float) -> float:
    return round(sorted(values)[int(of_all * (len(values) - 1))], 3)


def of_daemons(nodes: Nodes) -> list[float]:
    """For how many ms they have computed, and waited for a processor."""
    daemons = [node.leased.daemon for node in nodes.nodes.values()]
    stats = [Path(f"/proc/{d.process.pid}/schedstat").read_text().split() for d in daemons if d]
    return [sum(int(each[n]) for each in stats) / 1e6 for n in range(2)]


def always(nodes: Nodes, seconds: float) -> dict[str, Any]:
    """Two jobs that always want both GPUs."""
    ranks = {
        (job, name): nodes.start(name, job, f"tq:{TURN_S}", "-c", ALWAYS, nodes=A_B)
        for job in (1, 2)
        for name in A_B
    }
    pids = {rank: int(line(process)) for rank, process in ranks.items()}
    for process in ranks.values():
        tell(process)
    at_first = of_daemons(nodes)
    time.sleep(seconds)
    spent = [later - at for at, later in zip_strict(at_first, of_daemons(nodes))]
    for process in ranks.values():
        tell(process)
    for process in ranks.values():
        output(process)
    had = {name: {job: nodes[name].slices(pids[job, name]) for job in (1, 2)} for name in A_B}
    both = list(_met(*(list(turns(had[name])) for name in A_B)))
    grant_ms, skew_ms = [], []
    for before, after in pairwise(both):
        gap = max(start for start, _ in after) - max(end for _, end in before)
        grant_ms.append(gap / 1e6)
        skew_ms.append(abs(before[0][1] - before[1][1]) / 1e6)
    return {
        "grants": len(both),
        "grant_ms_p50": part(grant_ms, 0.5),
        "grant_ms_p99": part(grant_ms, 0.99),
        "skew_ms_p50": part(skew_ms, 0.5),
        "skew_ms_p99": part(skew_ms, 0.99),
        "daemons_cpu_ms": round(spent[0] / len(both), 2),
        "daemons_wait_ms": round(spent[1] / len(both), 2),
        "half_gangs_ms": (
            overlap_ns(had["a"][1], had["b"][2]) + overlap_ns(had["b"][1], had["a"][2])
        )
        / 1e6,
    }


def _met(one: list[tuple[int, Turn]], other: list[tuple[int, Turn]]) -> Iterator[list[Turn]]:
    """A job's turn on both nodes."""
    for job, (start, end) in one:
        for beside, (begin, over) in other:
            if beside == job and max(start, begin) < min(end, over):
                yield [(start, end), (begin, over)]


def half(nodes: Nodes, place: Path, jobs: int, number: int) -> float:
    """How many seconds so many jobs take together that need their GPUs half of the time. number: of
    the first."""
    started: list[subprocess.Popen[str]] = []
    for job in range(number, number + jobs):
        path = str(place / f"{job}.sock")
        first, second = [
            nodes.start(name, job, "tq:10", "-c", HALF, path, str(ROUNDS), name, nodes=A_B)
            for name in A_B
        ]
        assert line(first) == "listens"
        tell(second)
        assert line(second) == "connected"
        started += [first, second]
    began = time.monotonic()
    for process in started:
        tell(process)
    for process in started:
        output(process)
    return time.monotonic() - began


def measure(place: Path, munge: Path, seconds: float) -> dict[str, Any]:
    limits = '[limits]\nquantum_min = "50ms"\n'
    with Nodes(place / "always", A_B, munge, limits, timed=True) as nodes:
        found = always(nodes, seconds)
    with Nodes(place / "half", A_B, munge, timed=True) as nodes:
        # What else the machine does changes: one alone before it, and one behind it.
        before, together, behind = (half(nodes, place, n, job) for n, job in HALVES)
    return found | {"rl_pair_speedup": round((before + behind) / together, 2)}

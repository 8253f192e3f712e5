"""Jobs on several nodes with real daemons and real processes: all of a job runs, or nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.slurm.processes import wait_until
from tests.support.nodes import Nodes, munged, overlap_ns
from tests.support.programs import CHECK, SET_UP, line, output, tell
from tests.support.tenant import register

# Kernels of 2 ms until its input has a line. It says when it has waited for its turn. What it has
# of MiB is right at its end.
WORKS = (
    SET_UP
    + CHECK
    + """
import select, time
say(os.getpid()); sys.stdin.readline()
n = int(sys.argv[1]) << 18
if n: p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 7, n)); ok(d.cuCtxSynchronize())
before = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(5): ok(spin(2_000_000))
    ok(d.cuCtxSynchronize())
    now = time.monotonic()
    if now - before > 0.15: say("turn")
    before = now
if n: check(p, n, 7)
"""
)
A_B = ("a", "b")
QUICK = "tq:300ms"

Rank = tuple[int, str]  # job and node


@pytest.fixture
def nodes(short_dir: Path) -> Iterator[Nodes]:
    """Two nodes with an emulated GPU each."""
    with munged(short_dir / "munge") as munge, Nodes(short_dir, A_B, munge, QUANTA) as made:
        yield made


QUANTA = '[limits]\nquantum_min = "100ms"\ndrain = "2s"\n'


class Ranks:
    """The processes of some jobs: each job has one on each of its nodes."""

    def __init__(self, nodes: Nodes, jobs: dict[int, Sequence[str]], more: str = "", mib: int = 0):
        self.nodes, self.jobs = nodes, jobs
        self.processes: dict[Rank, subprocess.Popen[str]] = {}
        for job, names in jobs.items():
            several = names if len(names) > 1 else ()
            for name in names:
                made = nodes.start(name, job, QUICK + more, "-c", WORKS, str(mib), nodes=several)
                self.processes[job, name] = made
        self.pids = {rank: int(line(process)) for rank, process in self.processes.items()}
        for process in self.processes.values():
            tell(process)

    def turns(self, count: int) -> None:
        """Until each has had so many more."""
        for process in self.processes.values():
            for _ in range(count):
                assert line(process) == "turn"

    def end(self) -> None:
        for process in self.processes.values():
            tell(process)
        for process in self.processes.values():
            output(process)

    def slices(self, rank: Rank) -> list[tuple[int, int]]:
        return self.nodes[rank[1]].slices(self.pids[rank])

    def halves(self) -> list[tuple[Rank, Rank, int]]:
        """Whose work overlaps that of another job on another node of its job, for how long."""
        found = []
        for job, name in self.pids:
            for other, there in self.pids:
                if other != job and there in self.jobs[job]:
                    ns = overlap_ns(self.slices((job, name)), self.slices((other, there)))
                    found += [((job, name), (other, there), ns)] if ns else []
        return found


def test_two_jobs_on_two_nodes_and_one_on_one_take_turns(nodes: Nodes) -> None:
    ranks = Ranks(nodes, {1: A_B, 2: A_B, 3: ("b",)})
    ranks.turns(4)
    ranks.end()
    assert ranks.halves() == []


def test_their_memory_moves_on_both_nodes(nodes: Nodes) -> None:
    """Where two of the three do not fit together."""
    ranks = Ranks(nodes, {1: A_B, 2: A_B, 3: ("b",)}, ",memory:swap", mib=150)
    tenant_socket = nodes["a"].leased.run_dir / "tenant.sock"
    with pytest.raises(Refused, match="is on several nodes"):
        ask(tenant_socket, {"op": "move", "job_id": 1, "gpu": "0"})
    ranks.turns(2)
    ranks.end()
    assert ranks.halves() == []


@pytest.mark.parametrize("first", [True, False])
def test_a_daemon_that_is_killed_and_comes_back(nodes: Nodes, first: bool) -> None:
    """The one that lets a job run, or another one of its nodes'. Nothing of a job runs alone, but
    what ran on that node while it had no daemon."""
    jobs: dict[int, Sequence[str]]
    jobs = {1: A_B, 2: ("b", "a")} if first else {1: ("b", "a"), 2: A_B}
    ranks = Ranks(nodes, jobs)
    ranks.turns(2)
    for _ in range(2):
        nodes["a"].leased.kill()
        nodes["a"].leased.start()
        ranks.turns(2)
    ranks.end()
    assert ranks.halves() == []


def test_a_job_says_which_node_it_waits_for_and_goes_on_when_that_is_back(nodes: Nodes) -> None:
    nodes["b"].leased.stop()
    here = nodes.start("a", 7, QUICK, "-c", WORKS, "0", nodes=A_B)
    line(here)
    tell(here)
    wait_until(
        "the reason to be known",
        lambda: "not answered on b (" in str(nodes["a"].job(7)["on_nodes"]["why"]),
    )
    said = str(nodes["a"].job(7)["on_nodes"]["why"])
    assert said.startswith("gpu-leased has not answered on b (")
    assert "Connect call failed" in said
    nodes["b"].leased.start()
    there = nodes.start("b", 7, QUICK, "-c", WORKS, "0", nodes=A_B)
    line(there)
    tell(there)
    for process in (here, there):
        assert line(process) == "turn"
        tell(process)
        output(process)


def test_what_ends_while_it_waits_or_runs_leaves_nothing(nodes: Nodes) -> None:
    """Also if only one node hears of the end."""
    ranks = Ranks(nodes, {1: A_B, 2: A_B})
    ranks.turns(1)
    ask(nodes["a"].leased.admin_socket, {"op": "job_end", "job_id": 1})
    for _ in range(3):
        wait_until("job 2 to run alone", lambda: nodes["b"].job(2)["state"] == "holds")
    for job, name in list(ranks.processes):
        if job == 1:
            ask(nodes[name].leased.admin_socket, {"op": "job_end", "job_id": 1})
            process = ranks.processes.pop((job, name))
            process.kill()
    ranks.end()


def test_a_job_that_is_not_on_this_node_is_refused(nodes: Nodes) -> None:
    with pytest.raises(Refused, match="this node is a here, and the job is on others"):
        register(nodes["a"].leased.admin_socket, 5, nodes=["b", "c"])


def test_overlaps_are_found() -> None:
    one = [(0, 10), (20, 30), (30, 40)]
    assert overlap_ns(one, [(10, 20), (40, 50)]) == 0
    assert overlap_ns(one, [(5, 25), (39, 50)]) == 11

"""Jobs on several nodes in the simulator, whose daemons agree by their own protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leased.sim.jobs import GIB, MS, Gpu, Job, S, Setting, Trace
from leased.sim.run import Result, run

GPU = Gpu(16 * GIB)  # memory moves at 10 GiB/s
BOTH = (0, 1)
LATENCY = MS // 5
MESSAGES = 20  # one after the other, of a handoff between two jobs on several nodes, at most


def job(name: str, *bursts: tuple[float, float], **other: object) -> Job:
    pairs = tuple((round(gpu * S), round(cpu * S)) for gpu, cpu in bursts)
    given = {"name": name, "memory": GIB, "bursts": pairs, "nodes": BOTH}
    return Job(**given | other)  # type: ignore[arg-type]


def result(*jobs: Job, setting: Setting | None = None, latency: int = LATENCY) -> Result:
    return run(Trace((GPU,), jobs, 2, latency), setting or Setting())


def ends(found: Result) -> list[float]:
    return [job.end / S for job in found.jobs]


def test_alone_it_takes_as_long_as_on_one_node_and_some_messages() -> None:
    found = result(job("alone", (5, 3), (2, 1)))
    assert 0 < found.makespan - 11 * S <= MESSAGES * LATENCY
    assert found.handoffs == 0


def test_two_that_wait_on_the_cpu_by_turns_are_nearly_twice_as_fast_as_one_by_one() -> None:
    """As RL's generate and train, or two trainings with a loader: one computes in the pauses of
    the other, on both nodes."""
    pair = [job(name, *((5, 5),) * 12) for name in ("one", "other")]
    by_turns = result(*pair, setting=Setting(quantum=60 * S))
    one_by_one = result(*pair, setting=Setting(exclusive=True))
    assert one_by_one.makespan / by_turns.makespan >= 1.75


def test_jobs_take_turns_of_a_quantum_on_both_nodes_at_once() -> None:
    """As on one node: 0 to 3, 3 to 6, and 6 to 7 and 7 to 8 the rest."""
    pair = job("one", (4, 0)), job("other", (4, 0))
    found = result(*pair, setting=Setting(quantum=3 * S))
    assert ends(found) == pytest.approx([7, 8], abs=4 * MESSAGES * LATENCY / S)
    assert [one.handoffs for one in found.jobs] == [2, 4]  # of two GPUs


def test_a_handoff_costs_messages_over_the_link() -> None:
    pair = [job(name, *((1, 1),) * 20) for name in ("one", "other")]
    near, far = result(*pair), result(*pair, latency=100 * LATENCY)
    handoffs = sum(one.handoffs for one in far.jobs) // 2
    assert 2 * 99 * LATENCY < far.makespan - near.makespan < handoffs * MESSAGES * 100 * LATENCY


def test_its_memory_moves_on_all_nodes_at_once() -> None:
    """Two of 10 GiB on 16: each handoff moves 4 GiB each way on each node, 0.4 s, as on one."""
    pair = [job(name, (19, 0), memory=10 * GIB, swaps=True) for name in ("one", "other")]
    both = result(*pair, setting=Setting(quantum=10 * S))
    alone = [replace(one, nodes=(0,)) for one in pair]
    one = result(*alone, setting=Setting(lock="on", quantum=10 * S))
    assert ends(both) == pytest.approx(ends(one), abs=0.2)
    assert both.moved == 2 * one.moved


def test_others_have_a_gpu_while_the_job_waits_for_the_one_of_another_node() -> None:
    """On node 1 somebody has a quantum of 30 s; meanwhile node 0 works for its own job."""
    busy = job("busy", (30, 0), nodes=(1,))
    beside = job("beside", (25, 0), nodes=(0,))
    gang = job("gang", (5, 0), submit=S)
    found = result(gang, busy, beside, setting=Setting(lock="on", quantum=30 * S))
    assert found.jobs[2].end == 25 * S
    assert ends(found)[:2] == pytest.approx([35, 30], abs=0.1)


def test_a_job_on_several_nodes_has_its_gpus_for_itself_under_any_lock() -> None:
    pair = job("gang", (4, 0)), job("one", (4, 0), nodes=(0,), lock="auto")
    for lock in (None, "auto", "on"):
        found = result(*pair, setting=Setting(lock=lock, quantum=30 * S))
        assert sorted(ends(found)) == pytest.approx([4, 8], abs=0.1)

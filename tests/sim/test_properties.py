"""What holds for every trace: no work is lost or made, and nobody ends too soon."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased import policy
from leased.sim.jobs import GIB, LOCKS, MS, Gpu, Job, S, Setting, Trace
from leased.sim.run import Simulation, run
from leased.sim.trace import cycles
from tests.support.together import zip_strict

GPUS = 2
NODES = {1: ((0,),), 3: ((0,), (2,), (0, 1), (1, 2), (0, 1, 2))}  # that a job may be on, of so many
TIMES = st.sampled_from((0, 20 * MS, 300 * MS, 2 * S))
LISTS = st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=4)
BURSTS: st.SearchStrategy[list[tuple[int, int]]] = LISTS.filter(
    lambda bursts: any(gpu for gpu, _ in bursts)
)


def traces(nodes: int) -> st.SearchStrategy[Trace]:
    jobs = st.builds(
        Job,
        name=st.just("job"),
        memory=st.sampled_from((0, GIB, 5 * GIB, 9 * GIB, 10 * GIB)),
        bursts=BURSTS.map(tuple),
        gpus=st.sampled_from(((0,), (1,), (0, 1))),
        nodes=st.sampled_from(NODES[nodes]),
        submit=TIMES,
        lock=st.sampled_from(LOCKS),
        quantum=st.sampled_from((50 * MS, S, 30 * S)),
        swaps=st.booleans(),
        drain=st.sampled_from((0, 100 * MS)),
        touches_bytes_s=st.sampled_from((0.0, 20.0 * GIB)),
        idle_check=st.sampled_from((None, S)) if nodes == 1 else st.none(),
    )
    gpus = st.sampled_from((Gpu(10 * GIB), Gpu(10 * GIB, side_by_side=1.5)))
    latency = st.sampled_from((1, MS // 5, 20 * MS))
    some = st.lists(jobs, min_size=1, max_size=6).map(tuple)
    return st.builds(Trace, gpus.map(lambda gpu: (gpu,) * GPUS), some, st.just(nodes), latency)


TRACES = st.sampled_from(sorted(NODES)).flatmap(traces)
SETTINGS = st.builds(
    Setting,
    policy=st.sampled_from(policy.names()),
    lock=st.sampled_from((None, *LOCKS)),
    quantum=st.sampled_from((None, 100 * MS, 5 * S)),
    exclusive=st.booleans(),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(TRACES, SETTINGS)
def test_all_work_is_done_and_nobody_ends_before_its_own_work(
    trace: Trace, setting: Setting
) -> None:
    simulation = Simulation(trace, setting)
    found = simulation.run()
    for who, (job, ended) in enumerate(zip_strict(trace.jobs, found.jobs)):
        for n in job.nodes:
            computed = simulation.nodes[n].processors.computed[who]
            assert computed == pytest.approx(job.gpu_ns, abs=1000)
        assert ended.end - ended.submit >= job.alone_ns
        assert 0 <= ended.moving <= ended.waited
        if ended.end - ended.submit == job.alone_ns:
            assert ended.waited == 0
    for node in simulation.nodes:
        assert not node.clients
        assert not node.processors.works
        assert all(not memory.resident for memory in node.memory)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(traces(1))
def test_with_gpus_of_their_own_jobs_take_as_long_as_alone(trace: Trace) -> None:
    for job, ended in zip_strict(trace.jobs, run(trace, Setting(exclusive=True)).jobs):
        assert ended.end - ended.start == job.alone_ns
        assert ended.moved == 0


@settings(max_examples=50, deadline=None, derandomize=True)
@given(TRACES, SETTINGS)
def test_a_trace_always_gives_the_same(trace: Trace, setting: Setting) -> None:
    assert run(trace, setting) == run(trace, setting)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(2, 5), st.sampled_from((1, 2, 7)), st.sampled_from((200 * MS, 3 * S)))
def test_equal_jobs_that_came_in_order_end_in_order(jobs: int, turns: int, quantum: int) -> None:
    """Each has its k-th quantum before the next one has its own: they end a quantum apart."""
    bursts = ((turns * quantum, 0),)
    trace = Trace((Gpu(10 * GIB),), tuple(Job("job", GIB, bursts) for _ in range(jobs)))
    found = run(trace, Setting(lock="on", quantum=quantum))
    ends = [ended.end for ended in found.jobs]
    assert ends == [((turns - 1) * jobs + n) * quantum for n in range(1, jobs + 1)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.integers(1, S), st.integers(0, S), st.floats(0.01, 0.9))
def test_jitter_moves_time_and_makes_none(number: int, gpu: int, cpu: int, jitter: float) -> None:
    drawn = cycles(gpu, cpu, number, jitter, "1")
    assert sum(on for on, _ in drawn) == gpu * number
    assert sum(off for _, off in drawn) == cpu * number
    assert min(min(pair) for pair in drawn) >= 0
    assert drawn == cycles(gpu, cpu, number, jitter, "1")

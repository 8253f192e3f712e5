"""What a record says of jobs, and whether a simulation of them gives what really happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.base import toml_file
from leased.base.errors import Refused
from leased.core.events import Closed, MemoryChanged, Opened, QuantumSet, Requested, Restored, Tick
from leased.sim import bursts, history, observed, trace_text
from leased.sim.jobs import GIB, MS, S, Setting, Trace
from leased.sim.observed import Observed
from leased.sim.run import Result, run
from leased.sim.trace import trace_of
from tests.sim.recorded import DATA, JOBS, MEMORY, QUANTA_S, STEP_MS
from tests.sim.scripted import GPU, Script
from tests.support.together import zip_strict

NEAR = 0.1


def recorded(quantum_s: int) -> Observed:
    """What is known of the run with that quantum (python -m tests.sim.recorded)."""
    with Path(DATA / f"turns-{quantum_s}s.record").open("rb") as record:
        return observed.of(history.of(record, []))


def real(quantum_s: int) -> Result:
    found = recorded(quantum_s).real
    assert found is not None
    return found


def of_work(found: Result, trace: Trace) -> list[float]:
    """Ratios, so that the machine's speed does not show: until all were done, until a job was,
    and what jobs waited, each for a second of their work."""
    work = sum(job.gpu_ns for job in trace.jobs)
    waited = sum(job.waited for job in found.jobs)
    return [found.makespan / work, found.mean_turnaround / work, waited / work]


# -- against what was recorded -----------------------------------------------------------


@pytest.mark.parametrize("quantum_s", QUANTA_S)
def test_the_jobs_of_a_record_are_those_that_ran(quantum_s: int) -> None:
    trace = recorded(quantum_s).trace
    for job in trace.jobs:
        steps, pause_ms, cycles = JOBS[int(job.name.removeprefix("job ")) - 1]
        assert (job.lock, job.quantum, job.swaps) == ("on", quantum_s * S, True)
        assert job.memory == MEMORY
        at_work = [burst for burst in job.bursts if burst[0] > 100 * MS]
        assert len(at_work) == cycles
        assert at_work[0][1] == pytest.approx(pause_ms * MS, rel=NEAR)
        for on, _ in at_work:  # a step writes its memory too
            assert steps * STEP_MS * MS <= on <= 1.25 * steps * STEP_MS * MS


@pytest.mark.parametrize("asked", QUANTA_S)
@pytest.mark.parametrize("known", QUANTA_S)
def test_a_prediction_from_one_quantum_is_what_came_of_another(known: int, asked: int) -> None:
    source, came = recorded(known), real(asked)
    predicted = run(source.trace, Setting(source.policy, "on", asked * S))
    ratios = [
        of_work(predicted, source.trace),
        of_work(came, recorded(asked).trace),
    ]
    assert ratios[0] == pytest.approx(ratios[1], rel=NEAR)
    assert predicted.handoffs == pytest.approx(came.handoffs, rel=NEAR)


def test_a_trace_is_read_again_as_it_was_printed() -> None:
    found = recorded(QUANTA_S[0])
    text = trace_text.text(found.trace, found.notes)
    assert trace_of(toml_file.parse(text.encode())) == found.trace


# -- events by hand ------------------------------------------------------------------------


def opened(job: int, lock: str = "on") -> Opened:
    return Opened(job, (GPU,), lock, 10 * S)


def found_bursts(script: Script) -> dict[int, list[tuple[float, float]]]:
    """By job, in seconds."""
    found = script.history()
    return {
        job.job: [(on / S, off / S) for on, off in pairs]
        for job, pairs in zip_strict(found.runs, bursts.of_all(found))
    }


def test_pauses_of_a_job_alone_are_seen_by_nvml() -> None:
    """Busy from 1 to 3.25 and from 4.25 to 5; the look in which it stops goes on with what was."""
    script = Script()
    script.at(0, opened(1))
    script.at(1, Requested(1))
    script.looks(1, 100, 97, 100, 100, 50, 0, 50, 100)
    script.at(5, Closed(1))
    assert found_bursts(script) == {1: [(0, 1), (2.25, 1), (0.75, 0)]}


def test_a_look_that_ends_as_a_lease_begins_says_nothing_of_it() -> None:
    script = Script()
    script.at(0, opened(1))
    script.at(1, Requested(1))
    script.look(1.01, 0)
    script.at(2, Closed(1))
    assert found_bursts(script) == {1: [(0, 1), (1, 0)]}


def test_a_job_with_a_lease_has_computed() -> None:
    script = Script()
    script.at(0, opened(1))
    script.at(1, Requested(1))
    script.looks(1, 0, 0)
    script.at(3, Closed(1))
    assert found_bursts(script) == {1: [(0, 3), (0.001, 0)]}


def test_where_nvml_says_nothing_all_of_a_lease_is_work() -> None:
    script = Script()
    script.at(0, opened(1))
    script.at(1, Requested(1))
    script.at(5, Closed(1))
    assert found_bursts(script) == {1: [(0, 1), (4, 0)]}
    assert "NVML did not say" in " ".join(observed.of(script.history()).notes)


def test_a_revoked_job_that_asks_again_at_once_has_not_paused() -> None:
    script = Script()
    script.at(0, opened(1), opened(2), Requested(1), Requested(2))
    script.at(10, Tick())
    script.release(10, 1)
    script.at(10.001, Requested(1))
    script.at(20.001, Tick())
    script.release(20.001, 2)
    script.at(20.001, Closed(2))
    script.at(23, Closed(1))
    assert found_bursts(script) == {1: [(12.999, 0)], 2: [(10.001, 0)]}


def test_the_idleness_at_the_end_of_a_lease_belongs_to_the_pause() -> None:
    """It computes until 2, yields 2 ms later, which is as long as it is told to wait, and asks
    again at 5."""
    script = Script()
    script.at(0, opened(1), opened(2), Requested(1), Requested(2))
    script.release(2.002, 1)
    script.release(4, 2)
    script.at(4, Closed(2))
    script.at(5, Requested(1))
    script.at(6, Closed(1))
    assert found_bursts(script)[1] == [(2, 3), (1, 0)]


def test_side_by_side_each_has_its_part_of_the_work() -> None:
    script = Script()
    script.at(0, opened(1, "off"), opened(2, "off"), Requested(1), Requested(2))
    script.looks(0, *[100] * 8)
    script.at(4, Closed(1), Closed(2))
    assert found_bursts(script) == {1: [(2, 0)], 2: [(2, 0)]}


def test_memory_that_comes_back_is_no_work() -> None:
    script = Script()
    script.at(0, Opened(1, (GPU,), "on", 10 * S, swaps=True))
    script.at(0, MemoryChanged(1, GPU, 4 * GIB, 0, 0), Requested(1))
    script.at(3, Restored(1, script.epochs[1]))
    script.at(5, Closed(1))
    assert found_bursts(script) == {1: [(2, 0)]}


def test_things_that_a_trace_cannot_have_are_noted() -> None:
    script = Script()
    script.at(0, opened(1), opened(3), QuantumSet(GPU, 7 * S), Requested(1))
    script.at(2, MemoryChanged(1, GPU, 20 * GIB))
    found = observed.of(script.history())
    (job,) = found.trace.jobs
    assert (job.quantum, job.memory, found.trace.gpus[0].memory) == (7 * S, 20 * GIB, 20 * GIB)
    assert found.notes[:3] == (
        "1 job had not ended at the end of the record: simulated up to there",
        "1 job used no GPU and is left out",
        "NVML did not say how busy the GPUs were: leases in which nobody waited count as busy",
    )


def test_a_record_without_work_is_refused() -> None:
    with pytest.raises(Refused, match="no job has used a GPU"):
        observed.of(Script().history())


def test_a_job_that_comes_again_is_another_run() -> None:
    script = Script()
    for begin in (0, 10):
        script.at(begin, opened(1), Requested(1))
        script.at(begin + 2, Closed(1))
    names = [job.name for job in observed.of(script.history()).trace.jobs]
    assert names == ["job 1", "job 1 run 2"]

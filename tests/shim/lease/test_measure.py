"""For how long a process says that it has work (shim/lease/lease.c), in simulated time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.shim.lease.fakes import MS, Process, ffi, lib

PERIOD = 200 * MS


def measured(at: Callable[[Process, int], None]) -> tuple[float, float, int]:
    """In what part of the time it has had work, and has wanted to work, and how long it has looked
    (ms). at: makes it do something at such a time of each period (ns)."""
    process, said = Process(), [ffi.new("struct gl_progress *") for _ in range(2)]
    process.hear("GRANT", epoch=1)
    process.run(PERIOD)  # its memory is back
    process.do(lib.lease_measure, said[0])
    for step in range(800):
        at(process, step * MS % PERIOD)
        process.run(MS)
    process.do(lib.lease_measure, said[1])
    busy, seen, wanted = (
        getattr(said[1], name) - getattr(said[0], name)
        for name in ("busy_ns", "seen_ns", "wanted_ns")
    )
    return busy / seen, wanted / seen, seen // MS


def work(process: Process, busy: bool) -> None:
    process.busy = {0} if busy else set()


def submit(process: Process) -> None:
    """A call, whose work ends at once."""
    process.gate.n_calls += 1


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_unfinished_work_counts(part: float) -> None:
    busy, wanted, seen = measured(lambda process, at: work(process, at < part * PERIOD))
    assert busy == wanted == pytest.approx(part, abs=0.02)
    assert seen > 790


def test_one_that_waits_for_each_of_its_kernels_wants_all_of_the_time() -> None:
    """It is never found with unfinished work, yet it submits more and more."""
    busy, wanted, _ = measured(lambda process, _: submit(process))
    assert busy == 0
    assert wanted == pytest.approx(1, abs=0.01)


def test_times_in_which_it_may_not_run_do_not_count() -> None:
    """In its window it works for the half of the time; then more waits, which cannot begin."""

    def at(process: Process, ns: int) -> None:
        process.paused = ns >= 120 * MS
        work(process, ns < 60 * MS or process.paused)

    busy, _, seen = measured(at)
    assert busy == pytest.approx(0.5, abs=0.05)
    assert 450 <= seen <= 480


def bursts(at: Callable[[Process, int], None]) -> int:
    """How many it has seen to begin. at: makes it do something at such a time (ms)."""
    process, said = Process(), ffi.new("struct gl_progress *")
    process.hear("GRANT", epoch=1)
    process.run(PERIOD)
    process.do(lib.lease_measure, said)
    before = said.bursts
    for step in range(800):
        at(process, step)
        process.run(MS)
    process.do(lib.lease_measure, said)
    return int(said.bursts - before)


def test_bursts_are_counted_as_they_begin() -> None:
    assert bursts(lambda process, ms: work(process, 20 <= ms % 200 < 60)) == 4


def test_moments_without_work_between_calls_are_no_pauses() -> None:
    """A process that waits for each of its kernels has one burst, and not as many as samples."""

    def at(process: Process, ms: int) -> None:
        submit(process)
        work(process, ms % 7 < 3)

    assert bursts(at) <= 1


# -- when it rests and works ---------------------------------------------------------------------


def told(process: Process, parts: list[tuple[bool, int]], watched: bool = True) -> list[str]:
    """What it says while it works, or does not, for so many ms each."""
    process.hear("GRANT", epoch=1)
    process.run(PERIOD)
    said = ffi.new("struct gl_progress *")
    before = len(process.sent)
    for busy, ms in parts:
        work(process, busy)
        for step in range(ms):
            if step % 500 == 0:
                process.do(lib.lease_measure, said)
                if watched:
                    process.hear("WATCH")
            process.run(MS)
    return [name for name, _ in process.sent[before:] if name in ("RESTS", "WORKS")]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([(True, 100), (False, 50), (True, 10)], ["RESTS", "WORKS"]),
        ([(True, 100), (False, 6)] * 3, []),  # pauses of one burst
        ([(True, 4), (False, 16)] * 30, []),  # short bursts, one after the other
        ([(True, 4), (False, 600), (True, 4), (False, 400)], ["RESTS", "WORKS"]),
        ([(True, 12), (False, 6), (True, 12), (False, 50)], ["RESTS"]),
        ([(False, 700)], ["RESTS"]),
    ],
)
def test_who_asks_hears_when_it_rests_and_when_it_works_again(
    parts: list[tuple[bool, int]], says: list[str]
) -> None:
    assert told(Process(), parts) == says


def test_who_does_not_ask_hears_nothing() -> None:
    assert told(Process(), [(True, 100), (False, 50)] * 5, watched=False) == []


def test_after_a_while_without_questions_it_counts_as_one_that_works() -> None:
    process = Process()
    assert told(process, [(True, 100), (False, 50)]) == ["RESTS"]
    assert told(process, [(False, 1500)], watched=False) == []
    process.rests = False
    assert told(process, [(True, 100), (False, 50)]) == ["RESTS"], "not WORKS first"


def test_a_new_daemon_hears_it_again() -> None:
    process = Process()
    assert told(process, [(True, 100), (False, 50)]) == ["RESTS"]
    process.do(lib.lease_forget_daemon)
    process.rests = False
    assert told(process, [(True, 100), (False, 50)]) == ["RESTS"]


# -- calls that have finished --------------------------------------------------------------------


def done(process: Process, steps: Callable[[int], None], ms: int) -> tuple[int, int, float]:
    """How many calls have finished meanwhile, how many of them launched a graph, and for how long
    (ms) they were unfinished. steps: makes it do something at each ms."""
    said = [ffi.new("struct gl_progress *") for _ in range(2)]
    process.hear("GRANT", epoch=1)
    process.run(PERIOD)
    process.do(lib.lease_measure, said[0])
    for step in range(ms):
        steps(step)
        process.run(MS)
    process.do(lib.lease_measure, said[1])
    calls, graphs, ns = (
        getattr(said[1].done, name) - getattr(said[0].done, name)
        for name in ("calls", "graphs", "ns")
    )
    return calls, graphs, ns / MS


def test_calls_that_are_far_ahead_count_when_they_have_finished() -> None:
    """A hundred calls in ten ms, whose work takes 400."""
    process = Process()

    def at(ms: int) -> None:
        process.gate.n_calls += 10 * (ms < 10)
        work(process, ms < 400)

    calls, graphs, took = done(process, at, 300)
    assert (calls, took) == (0, 0)
    process = Process()
    calls, graphs, took = done(process, at, 500)
    assert (calls, graphs) == (100, 0)
    assert took == pytest.approx(400, abs=5)


def test_one_launch_after_the_other_counts_though_there_is_always_one() -> None:
    """Each takes 10 ms, and the next follows before anybody looks. What a mark stands behind has
    finished when the next launch comes."""
    process = Process()

    def at(ms: int) -> None:
        process.passes = ms % 10 == 0
        process.gate.n_calls += ms % 10 == 0
        process.gate.n_graphs += ms % 10 == 0
        work(process, True)

    calls, graphs, took = done(process, at, 600)
    assert graphs == calls
    assert calls == pytest.approx(60, abs=2)
    assert took / calls == pytest.approx(10, rel=0.05)


def test_calls_of_a_time_in_which_it_did_not_look_do_not_count() -> None:
    process = Process()
    done(process, lambda _: None, 100)
    process.run(3000 * MS)
    process.gate.n_calls += 1000
    said = [ffi.new("struct gl_progress *") for _ in range(2)]
    process.do(lib.lease_measure, said[0])
    process.run(100 * MS)
    process.do(lib.lease_measure, said[1])
    assert said[1].done.calls == said[0].done.calls

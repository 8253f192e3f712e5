"""The lease under random messages, threads, work and times: shim/lease/lease.c and closing.c
alone, with fakes at all doors (fakes.py, which checks each act)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.shim.lease.fakes import CONTEXTS, IDLE_NEVER, MS, PIECES, Process, ffi, lib
from tests.support.together import pairwise

S = 1000 * MS
STEP_S = 1  # so long the lease is kept for one call that does not come
ALONE_S = 10  # so long work stays stopped without a daemon
DONE_S = 1  # far more than what is finished takes to be released

contexts = st.integers(0, CONTEXTS - 1)
idle_times = st.sampled_from([IDLE_NEVER, IDLE_NEVER, 2 * MS, 40 * MS, 700 * MS])
in_flight = st.sampled_from([0, 10 * MS, 100 * MS])
# Relative to the lease that it holds: the same, an old one, a newer one; or none.
which = st.sampled_from([0, 0, 0, 0, -1, -3, 1, None])


class Anything(RuleBasedStateMachine):
    """A daemon that says anything at any time, over a program that does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.process = Process()
        self.newest = 10  # epoch that the daemon has ever named

    @initialize(swaps=st.booleans())
    def begin(self, swaps: bool) -> None:
        self.process.swaps = swaps

    def epoch(self, distance: int | None) -> int:
        if distance is None:
            return 0
        near = self.process.holds or self.newest
        return max(1, near + distance)

    def hear(self, name: str, **fields: Any) -> None:
        self.newest = max(self.newest, fields.get("epoch", 0))
        self.process.hear(name, **fields)

    # -- the daemon -------------------------------------------------------------

    @rule(idle_ns=idle_times, ahead=in_flight)
    def grant(self, idle_ns: int, ahead: int) -> None:
        """As it should be: of a lease that nobody has had."""
        if not self.process.holds:
            self.hear("GRANT", epoch=self.newest + 1, idle_ns=idle_ns, in_flight_ns=ahead)

    @rule(name=st.sampled_from(["GRANT", "RESTORE"]), of=which, idle_ns=idle_times, ahead=in_flight)
    def grant_any(self, name: str, of: int | None, idle_ns: int, ahead: int) -> None:
        self.hear(name, epoch=self.epoch(of), idle_ns=idle_ns, in_flight_ns=ahead)

    @rule(of=which)
    def revoke(self, of: int | None) -> None:
        self.hear("REVOKE", epoch=self.epoch(of))

    @rule(of=which, idle_ns=idle_times, ahead=in_flight)
    def contend(self, of: int | None, idle_ns: int, ahead: int) -> None:
        self.hear("CONTENDED", epoch=self.epoch(of), idle_ns=idle_ns, in_flight_ns=ahead)

    @rule(of=which)
    def step(self, of: int | None) -> None:
        self.hear("STEP", epoch=self.epoch(of))

    @rule(name=st.sampled_from(["EVICT", "LEAVE", "PRELOAD", "EXPECT", "AHEAD"]))
    def move(self, name: str) -> None:
        self.hear(name)

    @rule(ns=st.sampled_from([-1, -1, MS, S]))
    def expect_and_tell(self, ns: int) -> None:
        """ns: until there is more to do for host memory."""
        self.process.prepare_ns = ns
        self.hear("EXPECT", flags=lib.GL_EXPECT_TELLS)

    @rule(moves=st.booleans())
    def move_away(self, moves: bool) -> None:
        self.process.moves(moves)

    @rule(alone=st.sampled_from([0, 0, S, ALONE_S * S + MS]))
    def lose_the_daemon(self, alone: int) -> None:
        """A new one comes after a while."""
        process = self.process
        process.do(lib.lease_forget_daemon)
        process.idle_ns = IDLE_NEVER
        process.signals_told, process.tells_ready = -1, False
        if alone:
            process.run(alone)
        if not process.ended and not process.do(lib.lease_may_greet):
            assert process.run(DONE_S * S, lambda: process.do(lib.lease_may_greet), settles=True)
        hello = ffi.new("struct gl_hello *")
        process.do(lib.lease_hello, hello)
        assert hello.held_epoch == process.holds
        waits = bool(process.gate.at_gate) or process.still
        wants = not process.holds and waits and not process.ended
        assert process.still or process.holds or process.ended or not process.busy
        assert hello.flags == (lib.GL_HELLO_WANTS if wants else 0)

    # -- the program ------------------------------------------------------------

    @rule(context=contexts)
    def call(self, context: int) -> None:
        self.process.gate.come(context)

    @precondition(lambda self: self.process.gate.at_gate)
    @rule()
    def handle_signal(self) -> None:
        self.process.signals += 1

    @precondition(lambda self: self.process.gate.inside)
    @rule(submits=st.booleans())
    def leave(self, submits: bool) -> None:
        self.process.gate.leave(submits)

    @rule(context=contexts)
    def finish(self, context: int) -> None:
        if context in self.process.busy and self.process.stop_phase != lib.STOP_IS:
            self.process.busy.remove(context)
            self.process.active()

    @rule(able=st.booleans(), fail=st.booleans(), move=st.booleans())
    def change_stops(self, able: bool, fail: bool, move: bool) -> None:
        """Whether work can be stopped in mid-kernel, and how that goes."""
        process = self.process
        process.stoppable, process.stops_fail, process.stops_move = able, fail, move

    @precondition(lambda self: self.process.stop_phase == lib.STOP_IS and not self.process.still)
    @rule()
    def end_the_stop(self) -> None:
        """Nobody has renewed it."""
        self.process.stop_phase = lib.STOP_FAILED

    @rule()
    def want_quiet(self) -> None:
        self.process.tasks += 1

    @rule(excess=st.integers(0, 4))
    def need_less_host_memory(self, excess: int) -> None:
        self.process.excess = excess

    @rule(room=st.integers(0, PIECES))
    def set_room(self, room: int) -> None:
        self.process.memory.fits = max(room, self.process.memory.resident)

    # -- time -------------------------------------------------------------------

    @rule(ns=st.sampled_from([MS // 20, MS, 5 * MS, 30 * MS, 200 * MS, 2 * S]))
    def wait(self, ns: int) -> None:
        self.process.run(ns)

    # -- what must come to pass --------------------------------------------------

    @precondition(lambda self: self.process.holds and not self.process.ended)
    @rule()
    def release_after_a_revoke(self) -> None:
        """Within bounded time once the work has finished, whatever was before."""
        self.revoke(0)
        assert self.process.run(DONE_S * S, lambda: not self.process.holds, settles=True)

    @precondition(lambda self: not self.process.ended)
    @rule()
    def open_after_a_grant(self) -> None:
        self.grant(IDLE_NEVER, 0)
        process = self.process
        closes = process.revoked or process.lease.phase == lib.LEASE_CLOSING
        if not process.granted or closes or process.gate.open:  # what is open may be yielded now
            return
        assert process.run(DONE_S * S, lambda: process.gate.open, settles=True)
        assert not process.gate.at_gate

    @precondition(lambda self: not self.process.ended)
    @rule(context=contexts, submits=st.booleans())
    def work(self, context: int, submits: bool) -> None:
        """A thread is inside or its work under way, with a lease that is open."""
        self.open_after_a_grant()
        if self.process.gate.open:
            self.process.gate.come(context)
            if submits:
                self.process.gate.leave(True)

    @precondition(lambda self: not self.process.holds and not self.process.ended)
    @rule(comes=st.booleans(), quiet=st.booleans())
    def take_one_step(self, comes: bool, quiet: bool) -> None:
        """A call that does not come keeps the lease for a moment only."""
        process = self.process
        process.gate.at_gate.clear()
        process.settle()
        calls = process.gate.n_calls
        self.hear("STEP", epoch=self.newest + 1)
        if comes:
            process.gate.come(0)
        process.run(100 * MS)
        process.tasks += quiet
        assert process.run((STEP_S + DONE_S) * S, lambda: not process.holds, settles=True)
        assert process.gate.n_calls == calls + comes
        assert not process.tasks

    @precondition(lambda self: not self.process.ended)
    @rule()
    def yield_when_idle(self) -> None:
        self.open_after_a_grant()
        process = self.process
        if process.gate.open:
            self.hear("CONTENDED", epoch=process.holds, idle_ns=40 * MS, in_flight_ns=0)
            assert process.run(40 * MS + DONE_S * S, lambda: not process.holds, settles=True)

    @precondition(lambda self: not self.process.ended)
    @rule()
    def do_what_needs_quiet(self) -> None:
        process = self.process
        process.tasks += 1
        assert process.run((STEP_S + DONE_S) * S, lambda: not process.tasks, settles=True)

    @precondition(lambda self: not self.process.ended)
    @rule(now=st.sampled_from([False] * 9 + [True]))
    def end(self, now: bool) -> None:
        """The daemon has refused the process."""
        if now:
            self.process.do(lib.lease_end)
            self.process.ended = True

    @invariant()
    def nothing_passes_without_a_lease(self) -> None:
        process = self.process
        assert not process.fault
        assert not process.gate.open or (process.holds and not process.ended)
        assert bool(process.paced) <= (process.idle_ns != IDLE_NEVER or not process.gate.open)

    def teardown(self) -> None:
        if self.process.holds and not self.process.ended:
            self.release_after_a_revoke()


TestAnything = Anything.TestCase
TestAnything.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


# -- what is old changes nothing -----------------------------------------------------------------


def in_none(process: Process) -> None:
    process.hear("GRANT", epoch=20)
    process.run(S)
    process.hear("REVOKE", epoch=20)
    process.settle()
    assert process.run(S, lambda: not process.holds)


def in_restoring(process: Process) -> None:
    process.memory.fits = 1
    process.hear("GRANT", epoch=20)
    process.run(S)
    assert process.lease.phase == lib.LEASE_RESTORING


def in_open(process: Process) -> None:
    process.hear("GRANT", epoch=20)
    assert process.run(S, lambda: process.gate.open)


def in_closing(process: Process) -> None:
    in_open(process)
    process.busy.add(0)
    process.hear("REVOKE", epoch=20)
    process.run(S)
    assert process.lease.phase == lib.LEASE_CLOSING


@pytest.mark.parametrize("name", ["GRANT", "RESTORE", "REVOKE", "CONTENDED"])
@pytest.mark.parametrize("phase", [in_none, in_restoring, in_open, in_closing])
def test_messages_about_an_old_lease_change_nothing(
    name: str, phase: Callable[[Process], None]
) -> None:
    process = Process()
    phase(process)
    if process.lease.phase == lib.LEASE_NONE and name == "GRANT":
        pytest.skip("another process of the job may have kept that lease: it is granted again")
    before, acts = bytes(ffi.buffer(process.lease)), process.acts
    for epoch in (0, 1, 19):
        process.hear(name, epoch=epoch)
    assert (bytes(ffi.buffer(process.lease)), process.acts) == (before, acts)


def test_a_refusal_opens_nothing_although_memory_was_on_its_way() -> None:
    process = Process()
    process.memory.fits = 1
    process.hear("GRANT", epoch=20)
    process.run(10 * MS)
    process.gate.come(0)
    process.do(lib.lease_end)
    process.ended = True
    process.settle()
    process.run(S)
    assert not process.gate.open
    assert process.gate.at_gate


def test_waiters_that_come_while_the_gate_is_shut_for_a_task_are_heeded_after_it() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.tasks = 1
    process.run(MS)
    assert not process.gate.open
    process.hear("RESTORE", epoch=20, idle_ns=40 * MS, in_flight_ns=10 * MS)
    process.busy.clear()
    assert process.run(S, lambda: process.gate.open)
    assert process.gate.bounded
    assert process.paced == 10 * MS


def test_the_limit_of_work_in_flight_can_change_while_another_job_waits() -> None:
    process = Process()
    in_open(process)
    process.hear("CONTENDED", epoch=20, idle_ns=700 * MS, in_flight_ns=0)
    assert not process.paced
    assert not process.gate.bounded
    process.hear("CONTENDED", epoch=20, idle_ns=700 * MS, in_flight_ns=10 * MS)
    assert (process.paced, process.gate.bounded) == (10 * MS, True)
    process.hear("CONTENDED", epoch=20, idle_ns=700 * MS, in_flight_ns=100 * MS)
    assert process.paced == 100 * MS


def test_a_call_that_waits_for_a_task_first_comes_in_the_next_step() -> None:
    """The daemon steps again as long as another process of the job is stuck."""
    process = Process()
    in_none(process)
    process.hear("STEP", epoch=21)
    process.tasks = 1
    assert process.run(100 * MS, lambda: process.tasks_done)
    assert process.run(100 * MS, lambda: not process.holds)
    process.hear("STEP", epoch=21)
    process.gate.come(0)
    assert process.run(100 * MS, lambda: process.gate.inside)


@pytest.mark.parametrize("phase", [in_none, in_restoring, in_open, in_closing])
def test_nothing_follows_from_what_is_said_after_a_refusal(
    phase: Callable[[Process], None],
) -> None:
    process = Process()
    phase(process)
    process.do(lib.lease_end)
    process.ended = True
    process.settle()
    process.tasks = 1
    before, acts, said = bytes(ffi.buffer(process.lease)), process.acts, len(process.sent)
    for name in ("GRANT", "RESTORE", "REVOKE", "CONTENDED", "STEP"):
        for epoch in (20, 21):
            process.hear(name, epoch=epoch)
    for name in ("EVICT", "LEAVE", "PRELOAD", "EXPECT", "AHEAD"):
        process.hear(name)
    process.gate.come(0)
    process.run(S)
    assert bytes(ffi.buffer(process.lease)) == before
    assert (process.acts, len(process.sent)) == (acts, said)
    assert process.do(lib.lease_pause_ns) < 0


def test_a_step_ends_with_the_daemon_that_asked_for_it() -> None:
    process = Process()
    in_none(process)
    process.hear("STEP", epoch=21)
    process.run(10 * MS)
    assert process.gate.step_allowed
    process.do(lib.lease_forget_daemon)
    assert process.run(100 * MS, lambda: not process.holds)


# -- work that waits for a later call for its own context ------------------------------------------

DRAIN = 10 * S


def let_in(process: Process, ns: int) -> bool:
    """Is a call for the busy context let in within so much time? It makes that busy too."""
    process.gate.come(0)
    if not process.run(ns, lambda: process.gate.inside):
        return False
    process.gate.leave(True)
    return True


def test_a_call_for_a_busy_context_is_let_in_once_the_daemon_has_given_up() -> None:
    """Not before: work that only takes long is then followed by no more."""
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.hear("REVOKE", epoch=20, deadline_ns=DRAIN)
    assert not let_in(process, 2 * DRAIN - S)
    assert let_in(process, 2 * S)
    process.settle()
    assert process.run(S, lambda: not process.holds)


def test_calls_for_a_busy_context_become_ever_rarer() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.hear("REVOKE", epoch=20, deadline_ns=DRAIN)
    begun, times = process.now, []
    for _ in range(4):
        assert let_in(process, 100 * S)
        times.append(round((process.now - begun) / S))
    assert times == [20, 21, 23, 27]


# -- a pause that began before anybody waited ------------------------------------------------------

HANDOFF = 40 * MS


def contend(process: Process) -> None:
    process.hear("CONTENDED", epoch=20, idle_ns=HANDOFF, in_flight_ns=0)


def test_a_holder_that_has_long_been_idle_yields_at_once() -> None:
    process = Process()
    in_open(process)
    process.run(S)
    contend(process)
    assert process.run(MS, lambda: not process.holds)


def test_a_later_waiter_does_not_make_a_pause_begin_again() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    contend(process)
    process.run(10 * MS)
    process.settle()
    for _ in range(3):
        process.run(HANDOFF // 3)
        contend(process)
    assert process.run(HANDOFF // 3, lambda: not process.holds)


def test_a_holder_that_worked_until_now_is_not_taken_for_idle() -> None:
    process = Process()
    in_open(process)
    process.run(S)
    process.gate.come(0)
    process.gate.leave(submits=False)
    contend(process)
    assert not process.run(HANDOFF - 2 * MS, lambda: not process.holds)
    assert process.run(HANDOFF, lambda: not process.holds)


def test_long_work_is_no_pause_while_nobody_waits() -> None:
    process = Process()
    in_open(process)
    process.gate.come(0)
    process.gate.leave(submits=True)
    process.run(S)
    process.settle()
    contend(process)
    assert not process.run(HANDOFF - 2 * MS, lambda: not process.holds)


def test_a_pause_goes_on_when_those_who_waited_have_gone() -> None:
    process = Process()
    in_open(process)
    contend(process)
    process.run(HANDOFF // 2)
    process.hear("CONTENDED", epoch=20, idle_ns=IDLE_NEVER, in_flight_ns=0)
    process.run(HANDOFF)
    contend(process)
    assert process.run(MS, lambda: not process.holds)


def test_a_signal_is_told_once_to_each_daemon_until_the_gate_has_been_open() -> None:
    process = Process()

    def told() -> list[str]:
        sent, process.sent = [name for name, _ in process.sent], []
        return sent

    process.gate.come(0)
    process.signals = 1
    process.run(S)
    process.run(S)
    assert told() == ["REQUEST", "SIGNALLED"]
    process.do(lib.lease_forget_daemon)
    process.signals_told = 0
    process.run(S)
    assert told() == ["REQUEST", "SIGNALLED"]
    in_open(process)
    in_none(process)
    process.gate.come(0)
    process.run(S)
    assert "SIGNALLED" not in told()


def test_host_memory_is_given_up_in_quiet_and_seldom_during_a_lease() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.excess = 25
    process.run(10 * MS)
    assert (process.excess, process.gate.open) == (25, False)
    process.busy.clear()
    assert process.run(S, lambda: process.gate.open)
    left = process.excess
    assert 3 <= left <= 5  # it was given up for as long again as the gate had been shut
    process.busy.add(0)
    process.run(S)
    assert (process.excess, process.gate.open) == (left, True)
    assert process.run(S, lambda: not process.gate.open)
    assert process.excess == left
    process.hear("REVOKE", epoch=20)
    process.busy.clear()
    assert process.run(S, lambda: not process.holds)
    assert process.excess == left  # whoever is next does not wait for it
    process.run(S)
    assert process.excess == 0


@pytest.mark.parametrize("kernel_ms", [1, 5, 18])
def test_a_fiftieth_of_the_time_goes_to_giving_up_host_memory(kernel_ms: int) -> None:
    """Kernels of so many ms, of which each is launched as soon as the gate is open."""
    process = Process()
    in_open(process)
    process.excess, shut, left = 400, 0, 0
    for _ in range(6000):
        if process.gate.open and not process.busy:
            process.busy.add(0)
            left = kernel_ms
        process.run(MS)
        shut += not process.gate.open
        left -= 1
        if left <= 0:
            process.busy.clear()
    assert 0 < process.excess < 400
    assert shut < 6000 / 25


def test_the_gate_opens_again_where_work_does_not_finish_soon() -> None:
    """It may wait for a call of another process of the job, whose gate is shut for the same."""
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.excess = 1
    shut = 0
    for _ in range(600):
        process.run(10 * MS)
        shut += not process.gate.open
    assert 3 <= shut <= 9  # for 20 ms each, at 0, 1 and 3 s
    process.busy.clear()
    process.run(10 * S)
    assert not process.excess


def test_it_tells_once_when_host_memory_is_ready_if_it_was_asked_to() -> None:
    process = Process()
    in_open(process)

    def told() -> int:
        return sum(name == "READY" for name, _ in process.sent)

    process.hear("EXPECT")
    process.run(S)
    assert told() == 0
    process.prepare_ns = MS
    process.hear("EXPECT", flags=lib.GL_EXPECT_TELLS)
    process.run(S)
    assert told() == 0
    process.prepare_ns = -1
    process.run(S)
    process.run(S)
    assert told() == 1


def test_where_it_moves_it_tells_when_its_memory_has_left() -> None:
    process = Process()
    in_none(process)
    process.run(S)
    process.hear("LEAVE")
    process.moves(True)
    assert process.memory.resident
    assert process.run(S, lambda: any(name == "READY" for name, _ in process.sent))
    assert process.memory.evicted == PIECES


# -- stopped work ----------------------------------------------------------------------------------


def stopped(swaps: bool = True) -> Process:
    """Without a lease, with work that is stopped in mid-kernel."""
    process = Process(swaps)
    in_open(process)
    process.stoppable = True
    process.busy.add(0)
    process.hear("REVOKE", epoch=20)
    assert process.run(S, lambda: not process.holds)
    assert process.still
    process.run(S)
    return process


def goes_on_alone(process: Process) -> bool:
    """Whether its work does, in ten times the time."""
    process.do(lib.lease_forget_daemon)
    assert not process.run((ALONE_S - 1) * S, lambda: not process.still)
    return process.run(10 * ALONE_S * S, lambda: not process.still)


@pytest.mark.parametrize(
    ("swaps", "order", "goes_on"),
    [
        (True, None, True),
        (True, "EVICT", False),
        (True, "LEAVE", False),
        (False, None, True),
        (False, "LEAVE", True),
    ],
)
def test_stopped_work_goes_on_without_a_daemon_unless_its_memory_is_away(
    swaps: bool, order: str | None, goes_on: bool
) -> None:
    process = stopped(swaps)
    if order:
        process.hear(order)
    assert goes_on_alone(process) == goes_on


def test_work_stays_stopped_where_a_daemon_may_be_that_is_not_heard() -> None:
    process = stopped()
    process.do(lib.lease_forget_daemon)
    process.do(lib.lease_give_up)
    assert not process.run(10 * ALONE_S * S, lambda: not process.still)


def test_what_went_on_alone_is_stopped_before_a_new_daemon_hears_of_it() -> None:
    process = stopped()
    assert goes_on_alone(process)
    assert not process.do(lib.lease_may_greet)
    said = len(process.sent)
    assert process.run(S, lambda: process.do(lib.lease_may_greet))
    assert process.still
    assert len(process.sent) == said
    hello = ffi.new("struct gl_hello *")
    process.do(lib.lease_hello, hello)
    assert (hello.held_epoch, hello.flags) == (0, lib.GL_HELLO_WANTS)
    process.hear("EVICT")
    process.hear("GRANT", epoch=21)
    assert process.run(S, lambda: process.gate.open)


def test_work_that_the_driver_brings_memory_for_goes_on_before_that_is_there() -> None:
    process = stopped(swaps=False)
    process.hear("LEAVE")
    process.run(S)
    process.memory.fits = 1
    process.hear("GRANT", epoch=21)
    assert process.run(S, lambda: not process.still)
    assert process.lease.phase == lib.LEASE_RESTORING
    process.stoppable = False
    process.hear("REVOKE", epoch=21)
    assert not process.run(S, lambda: not process.holds)  # its work has not finished
    process.busy.clear()
    assert process.run(S, lambda: not process.holds)


def test_time_in_which_the_process_does_not_run_is_no_time_of_a_stop() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.stoppable, process.stops_move = True, False
    process.hear("REVOKE", epoch=20)
    assert process.run(S, lambda: process.begun)
    process.now += 10 * S  # it was halted, or got no processor
    process.run(MS)
    process.stops_move = True
    assert process.run(MS, lambda: not process.holds)
    assert process.still
    assert process.begun == 1


def test_a_stop_that_has_failed_is_tried_again_and_ever_more_rarely() -> None:
    process = Process()
    in_open(process)
    process.busy.add(0)
    process.stoppable, process.stops_fail = True, True
    begun: list[int] = []
    process.hear("REVOKE", epoch=20, deadline_ns=DRAIN)
    for _ in range(10_000):
        before = process.begun
        process.run(MS)
        if process.begun > before:
            begun.append(round(process.now / S))
    assert process.holds
    pauses = [b - a for a, b in pairwise(begun)]
    assert pauses == [1, 2, 4]
    process.stops_fail = False
    assert process.run(10 * S, lambda: not process.holds)
    assert process.still

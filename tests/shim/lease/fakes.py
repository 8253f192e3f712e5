"""A process with one lease (shim/lease/lease.c), on fakes of everything that the lease acts on.

`Process` has the time, the gate, the memory and the daemon's messages. At each act of the lease it
checks that the lease may do that then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.shim.lease.fake_parts import IDLE_NEVER, MS, PIECES, Broken, Gate, Memory, ffi, lib

__all__ = ["CONTEXTS", "IDLE_NEVER", "MS", "PIECES", "Broken", "Process", "ffi", "lib"]

CONTEXTS = 2
SHORTEST_PAUSE_NS = 16 * MS  # a shorter pause is not taken for a long one (idle.h)


class Process:
    """A process with one lease. It knows from the messages of both sides what the lease may do."""

    def __init__(self, swaps: bool = True):
        self.now = 10**12
        self.swaps = swaps
        self.prepare_ns = -1  # what the mover's prepare() returns
        self.excess = 0  # pieces of host memory that can be given up
        self.tells_ready = False  # READY is to be said when that is below 0
        self.rests = False
        self.gate = Gate(self)
        self.memory = Memory(self)
        self.busy: set[int] = set()  # contexts with unfinished work
        self.busy_when_drained: set[int] = set()
        self.tasks = self.tasks_done = 0
        self.passes = False  # what was in flight when it was last looked at has finished
        self.paused = False
        self.stoppable, self.stops_fail, self.stops_move = False, False, True
        self.stop_phase: int = lib.STOP_NONE
        self.still = False  # the work is stopped, and memory may move
        self.begun = 0  # stops
        self.sent: list[tuple[str, Any]] = []
        self.memory_sent = False  # since the last change of phase
        self.signals = self.signals_told = 0  # that threads at the gate have handled
        self.paced = 0
        self.active_at = self.now
        # What the messages of both sides tell:
        self.holds = 0  # the epoch of its lease; 0: it has none
        self.granted = self.revoked = self.ended = False  # not granted: the lease is for one call
        self.idle_ns = IDLE_NEVER
        self.shut_idle: bool | None = None  # had it been idle for long enough when it shut?
        self.acts = 0
        self._kept: list[Any] = []
        self.lease = ffi.new("struct lease *")
        lib.lease_begin(self.lease, self._port())

    # -- the structs of lease/port.h --------------------------------------------------------------

    def _door(self, struct: str, **functions: Callable[..., Any]) -> Any:
        door = ffi.new(f"struct {struct} *")
        for name, function in functions.items():
            kind = dict(ffi.typeof(f"struct {struct}").fields)[name].type
            callback = ffi.callback(kind, function, onerror=self._failed)
            self._kept.append(callback)
            setattr(door, name, callback)
        self._kept.append(door)
        return door

    def _failed(self, _: Any, error: BaseException, __: Any) -> None:
        self.fault = self.fault or error

    fault: BaseException | None = None

    def _act(self, function: Callable[..., None]) -> Callable[..., None]:
        def acting(*arguments: Any) -> None:
            self.acts += 1
            function(*arguments)

        return acting

    def _port(self) -> Any:
        gate, memory, act = self.gate, self.memory, self._act
        port = self._door(
            "lease_port",
            now=lambda: self.now,
            waiting=lambda: len(gate.at_gate),
            signals=lambda: self.signals,
            wake=act(gate.let_in),
            send=act(self._send),
            send_memory=act(self._send_memory),
            swaps=lambda: self.swaps,
        )
        port.gate = self._door(
            "lease_gate",
            open=act(gate.do_open),
            shut=act(gate.do_shut),
            bound=act(gate.do_bound),
            step=act(gate.do_step),
            step_pending=lambda: bool(gate.step_allowed),
            empty=lambda: not gate.inside,
            calls=lambda: gate.n_calls + len(gate.inside),
            graphs=lambda: gate.n_graphs,
        )
        port.pace = self._door("pace", begin=act(self._begin_pace), end=act(self._end_pace))
        port.work = self._door(
            "lease_work",
            drained=self._drained,
            idle=lambda: not self.busy,
            passed=lambda: self.passes or not self.busy,
            some_idle=lambda: len(self.busy_when_drained) < CONTEXTS,
        )
        port.mover = self._door(
            "mover",
            restore=act(memory.restore),
            restore_finished=memory.restore_finished,
            needed_is_here=lambda: not self.swaps or memory.restore_finished(),
            refill=act(lambda _: None),
            allow_eviction=memory.allow_eviction,
            evict=act(memory.evict),
            evict_all=act(memory.evict_all),
            preload=act(memory.preload),
            expect=act(lambda _: None),
            keep_host_memory=act(lambda _: None),
            rest=act(lambda _: None),
            prepare=lambda: self.prepare_ns,
            step=memory.step,
            pause_ns=lambda: MS,
            has_excess=lambda: self.excess > 0,
            give_up_excess=act(self._give_up_excess),
            stop=act(memory.stop),
            link_sample=lambda: ffi.new("struct link_sample *", {"bytes": 1, "ns": 2})[0],
        )
        port.stops = self._door(
            "lease_stops",
            able=lambda: self.stoppable,
            paused=lambda: self.paused,
            prepare=act(lambda: None),
            begin=act(self._begin_stop),
            phase=lambda: self.stop_phase,
            movable=self._movable,
            end=act(self._end_stop),
            give_up=act(self._end_stop),
        )
        port.quiet = self._door("lease_quiet", wanted=lambda: self.tasks > 0, now=self._be_quiet)
        return port

    def _begin_stop(self) -> None:
        if self.gate.open or self.stop_phase != lib.STOP_NONE:
            raise Broken("a stop begins while the gate is open, or twice")
        self.begun += 1
        self.stop_phase = lib.STOP_FAILED if self.stops_fail else lib.STOP_IS

    def _movable(self) -> bool:
        if self.gate.inside:
            raise Broken("memory may move while a thread is inside")
        self.still = self.stop_phase == lib.STOP_IS and self.stops_move
        return self.still

    def _end_stop(self) -> None:
        if self.stop_phase == lib.STOP_NONE:
            raise Broken("a stop ends that has not begun")
        if self.still and self.swaps:
            self.memory.check_resident("stopped work goes on")
        self.stop_phase, self.still = lib.STOP_NONE, False

    def _drained(self) -> bool:
        self.busy_when_drained = set(self.busy)
        return not self.busy

    def _begin_pace(self, ns: int) -> None:
        self.paced = ns

    def _end_pace(self) -> None:
        if not self.paced:
            raise Broken("a pace ends that has not begun")
        self.paced = 0

    def _be_quiet(self) -> None:
        self._check_finished("a task is done")
        self.tasks_done += self.tasks
        self.tasks = 0

    def _give_up_excess(self, ns: int) -> None:
        self._check_finished("host memory is given up")
        pieces = min(self.excess, 1 + ns // (MS // 2))
        self.excess -= pieces
        self.now += pieces * MS // 2

    def _send_memory(self) -> None:
        self.memory_sent = True

    def _send(self, message: Any, size: int) -> None:
        header = ffi.cast("struct gl_header *", message)
        row = lib.gl_message_of(header.type)
        if row == ffi.NULL or row.size != size or row.sender != lib.GL_CLIENT:
            raise Broken(f"a message of type {header.type} with {size} bytes")
        name = ffi.string(row.name).decode()
        if self.ended:
            raise Broken(f"{name} is sent after the end")
        said = ffi.new(f"struct {ffi.string(row.body).decode()} *")
        ffi.memmove(said, message, size)
        self.sent.append((name, said))
        getattr(self, f"_sent_{name.lower()}")(said)

    # -- what may be done when ---------------------------------------------------

    def active(self) -> None:
        self.active_at = self.now

    def check_may_open(self) -> None:
        if self.ended or not self.holds or not self.granted or self.revoked:
            raise Broken("the gate opens without a grant")
        self.memory.check_resident("the gate opens")

    def check_may_step(self) -> None:
        """One call may pass because the daemon has said so, or because the process's own work does
        not finish."""
        if self.ended or not self.holds:
            raise Broken("a call is let in without a lease")
        self.memory.check_resident("a call is let in")
        if self.granted and not self.busy and not self.gate.inside:
            raise Broken("a call is let in, and nothing is stuck")

    def check_holds_nothing(self, what: str) -> None:
        if self.holds:
            raise Broken(f"{what} while the process has a lease")

    def check_nothing_runs(self, what: str) -> None:
        self.check_holds_nothing(what)
        if self.busy and not self.still:
            raise Broken(f"{what} while work runs")

    def _check_finished(self, what: str, stopped: bool = False) -> None:
        gate = self.gate
        works = self.busy and not stopped
        if gate.open or gate.step_allowed or gate.inside or works:
            raise Broken(f"{what} while the program works")

    def gate_shut(self) -> None:
        """Notes whether the process had been idle for long enough."""
        idle = self.now - self.active_at
        self.shut_idle = (
            self.idle_ns != IDLE_NEVER
            and not self.busy
            and not self.gate.inside
            and idle >= min(self.idle_ns, SHORTEST_PAUSE_NS)
        )

    def _sent_request(self, _: Any) -> None:
        if self.holds or not (self.gate.at_gate or self.still):
            raise Broken("a lease is requested that the process has, or that no thread waits for")
        if not self.memory_sent:
            raise Broken("a lease is requested before MEMORY is sent")

    def _sent_ready(self, _: Any) -> None:
        if not self.tells_ready or self.prepare_ns >= 0:
            raise Broken("READY is sent unasked, or while host memory is being made")
        self.tells_ready = False

    def _sent_rests(self, _: Any) -> None:
        if not self.holds or self.rests:
            raise Broken("RESTS is sent without a lease, or a second time")
        self.rests = True

    def _sent_works(self, _: Any) -> None:
        if not self.holds or not self.rests:
            raise Broken("WORKS is sent without a lease, or not after RESTS")
        self.rests = False

    def _sent_signalled(self, _: Any) -> None:
        if self.holds or not self.lease.requested:
            raise Broken("SIGNALLED is sent, and no lease is requested")
        if self.signals_told == self.signals:
            raise Broken("SIGNALLED is sent, and no signal has come")
        self.signals_told = self.signals

    def _sent_released(self, said: Any) -> None:
        if said.epoch != self.holds:
            raise Broken(f"the lease {said.epoch} is released, and the process has {self.holds}")
        self._check_finished("the lease is released", self.still)
        if bool(said.flags & lib.GL_RELEASED_STOPPED) != self.still:
            raise Broken("RELEASED does not say rightly whether work is stopped")
        if self.memory.in_residency or self.memory.restoring or self.memory.evicting:
            raise Broken("the lease is released while memory is moved or must not be evicted")
        if self.granted and not self.revoked and not self.shut_idle:
            raise Broken("the lease is given up unasked, and the process was not idle")
        if bool(said.flags & lib.GL_RELEASED_WANTS) != bool(self.gate.at_gate or self.still):
            raise Broken("RELEASED does not say rightly whether threads wait")
        self.holds, self.granted, self.revoked = 0, False, False

    def _sent_restored(self, said: Any) -> None:
        if said.epoch != self.holds or not self.granted:
            raise Broken("RESTORED is sent for another lease")
        self.memory.check_resident("RESTORED is sent")

    def _sent_stuck(self, said: Any) -> None:
        if said.epoch != self.holds or not (self.busy or self.gate.inside):
            raise Broken("STUCK is sent, and no work is unfinished")

    # -- events ------------------------------------------------------------

    def hear(self, name: str, **fields: Any) -> None:
        """A message of the daemon comes. What it means for the lease is noted first."""
        kind = getattr(lib, f"GL_{name}")
        row = lib.gl_message_of(kind)
        message = ffi.new(f"struct {ffi.string(row.body).decode()} *")
        header = message if ffi.string(row.body) == b"gl_header" else message.header
        header.magic, header.version = lib.GL_MAGIC, lib.GL_VERSION
        header.type, header.length = kind, row.size
        if name in ("GRANT", "RESTORE", "CONTENDED"):
            fields = {"idle_ns": IDLE_NEVER, **fields}
        for field, value in fields.items():
            setattr(message, field, value)
        if not self.ended:
            getattr(self, f"_hear_{name.lower()}", lambda **_: None)(**fields)
        self.do(lib.lease_take, message)

    def _hear_grant(self, epoch: int, idle_ns: int = IDLE_NEVER, **_: Any) -> None:
        if epoch and epoch >= self.holds:
            if epoch > self.holds:
                self.granted = True
            self.holds = epoch
            self.idle_ns = idle_ns

    def _hear_restore(self, epoch: int, idle_ns: int = IDLE_NEVER, **_: Any) -> None:
        if epoch == self.holds:
            self.idle_ns = idle_ns

    def _hear_contended(self, epoch: int, idle_ns: int, **_: Any) -> None:
        if epoch == self.holds:
            self.idle_ns = idle_ns

    def _hear_revoke(self, epoch: int, **_: Any) -> None:
        self.revoked = self.revoked or bool(self.holds and epoch == self.holds)

    def _hear_expect(self, flags: int = 0) -> None:
        self.tells_ready |= bool(flags & lib.GL_EXPECT_TELLS)

    def moves(self, moves: bool) -> None:
        """A move begins, or is over."""
        self.tells_ready |= moves
        self.do(lib.lease_moves, moves)

    def _hear_step(self, epoch: int, **_: Any) -> None:
        if not self.holds:
            self.holds = epoch

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the lease. Broken: a fake has found a fault."""
        result = function(self.lease, *arguments)
        if self.fault:
            raise self.fault
        if self.lease.epoch != self.holds and self.lease.phase != lib.LEASE_ENDED:
            raise Broken(f"the lease is {self.lease.epoch}; by the messages it is {self.holds}")
        return result

    def advance(self) -> None:
        self.memory_sent = False
        self.do(lib.lease_ask)
        self.do(lib.lease_tell_signals)
        self.do(lib.lease_advance)
        self.gate.let_in()

    def run(
        self, ns: int, until: Callable[[], object] = lambda: False, *, settles: bool = False
    ) -> bool:
        """Runs the client thread's loop for so much time. Returns True as soon as `until` does.

        settles: calls return and work finishes at once.
        """
        end, at_once = self.now + ns, 0
        for _ in range(100_000):
            if settles:
                self.settle()
            self.advance()
            if until():
                return True
            pause = self.do(lib.lease_pause_ns)
            at_once = at_once + 1 if pause == 0 else 0
            if at_once > 5:
                raise Broken("the loop does not pause at all")
            if pause < 0 and self.lease.phase in (lib.LEASE_RESTORING, lib.LEASE_CLOSING):
                raise Broken("the loop waits for ever for what only it can do")
            self.now = end if pause < 0 else min(self.now + pause, end)
            if self.now >= end:
                return bool(until())
        raise Broken("the loop does not end")

    def settle(self) -> None:
        """All calls of the program return, and all its work finishes."""
        while self.gate.inside:
            self.gate.leave(False)
        if self.stop_phase == lib.STOP_NONE:
            self.busy.clear()
        self.memory.fits = PIECES

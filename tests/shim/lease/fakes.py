"""Everything that the lease (shim/lease/lease.c) acts on, as fakes: time, the gate with the
program's threads, their work, the memory and the daemon's ear.

`Process` has one lease and checks at each of its acts that it may do that then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.conftest import ROOT

sys.path.append(str(ROOT / "build" / "meson" / "tests" / "shim" / "lease"))
from _lease_alone import ffi, lib

__all__ = ["CONTEXTS", "IDLE_NEVER", "MS", "PIECES", "Broken", "Process", "ffi", "lib"]

MS = 10**6
IDLE_NEVER: int = lib.GL_IDLE_NEVER
PIECES = 8  # of memory, when all of it is away
FLIGHT_NS = 3 * MS  # so long one is on its way
CONTEXTS = 2
SHORTEST_PAUSE_NS = 16 * MS  # no shorter one is taken for a long one (idle.h)


class Broken(AssertionError):
    """The lease did what it may not do."""


class Gate:
    """The gate, and the threads of the program that are inside or wait at it."""

    def __init__(self, process: Process):
        self.process = process
        self.open = self.bounded = self.step_allowed = False
        self.inside: list[int] = []  # the context of each thread's call
        self.at_gate: list[int] = []
        self.n_calls = 0

    def come(self, context: int) -> None:
        """A thread makes a call for a context."""
        self.at_gate.append(context)
        self.look()

    def look(self) -> None:
        """Those who wait look whether they may pass."""
        for context in list(self.at_gate):
            takes_step = self.step_allowed and context not in self.process.busy_when_drained
            if not self.open and not takes_step:
                continue
            if not self.open:
                self.step_allowed = False
            self.at_gate.remove(context)
            self.inside.append(context)
            self.n_calls += 1
            self.process.active()
            self.process.memory.check_there("a call passes")

    def leave(self, submits: bool) -> None:
        """The call of a thread returns."""
        context = self.inside.pop(0)
        if submits:
            self.process.busy.add(context)
        self.process.active()

    def do_open(self) -> None:
        self.process.check_may_open()
        self.open, self.bounded = True, False

    def do_shut(self) -> None:
        self.open = self.bounded = False
        self.process.gate_shut()

    def do_bound(self, pace: Any) -> None:
        self.bounded = pace != ffi.NULL and self.open

    def do_step(self, allowed: bool) -> None:
        if allowed:
            self.process.check_may_step()
        self.step_allowed = allowed


class Memory:
    """So many pieces are away or on their way; `room` are those that fit on the device."""

    def __init__(self, process: Process):
        self.process = process
        self.away, self.coming, self.leaving = PIECES, 0, 0
        self.room = PIECES
        self.there_for_program = False  # since restore_finished(), until allow_eviction()
        self.mode = "rest"
        self.to_leave = self.n_restores = self.arrives_at = 0

    @property
    def there(self) -> int:
        return PIECES - self.away - self.coming - self.leaving

    def check_there(self, what: str) -> None:
        if not self.there_for_program or self.away or self.coming or self.leaving:
            raise Broken(f"{what} while memory is away")

    def restore(self, _: Any) -> None:
        self.mode = "restore"
        self.n_restores += 1

    def restore_finished(self) -> bool:
        done = not (self.away or self.coming or self.leaving)
        if done:
            self.there_for_program, self.mode = True, "rest"
        return done

    def allow_eviction(self) -> bool:
        self.there_for_program = False
        return True

    def evict(self, _: Any) -> None:
        self.process.check_holds_nothing("memory is evicted")
        self.mode, self.to_leave = "evict", 3

    def evict_all(self) -> None:
        self.process.check_holds_nothing("all memory leaves")
        self.mode, self.to_leave = "evict", self.there

    def preload(self, _: Any) -> None:
        self.process.check_holds_nothing("memory is brought before its turn")
        if self.mode == "rest":
            self.mode = "restore"

    def step(self) -> bool:
        if self.there_for_program and (self.coming or self.leaving):
            raise Broken("memory moves under the program")
        if self.process.now < self.arrives_at:
            return bool(self.coming or self.leaving)
        self.away += self.leaving
        self.coming = self.leaving = 0
        self.arrives_at = self.process.now + FLIGHT_NS
        if self.mode == "restore" and self.away and self.there < self.room:
            self.away, self.coming = self.away - 1, 1
        elif self.mode == "evict" and self.to_leave and self.there:
            self.leaving, self.to_leave = 1, self.to_leave - 1
        return bool(self.coming or self.leaving)

    def stop(self) -> None:
        self.mode, self.to_leave = "rest", 0


class Process:
    """A process with one lease, and what is known of it from its messages alone."""

    def __init__(self, swaps: bool = True):
        self.now = 10**12
        self.swaps = swaps
        self.prepare_ns = -1  # as the mover says
        self.gate = Gate(self)
        self.memory = Memory(self)
        self.busy: set[int] = set()  # contexts with work under way
        self.busy_when_drained: set[int] = set()
        self.tasks = self.tasks_done = 0
        self.sent: list[tuple[str, Any]] = []
        self.memory_sent = False  # since the last change of phase
        self.paced = 0
        self.active_at = self.now
        # What the messages of both sides say:
        self.holds = 0  # epoch
        self.granted = self.revoked = self.ended = False  # granted: else for one call
        self.idle_ns = IDLE_NEVER
        self.shut_idle: bool | None = None  # had it been idle for long enough when it shut?
        self.acts = 0
        self._kept: list[Any] = []
        self.lease = ffi.new("struct lease *")
        lib.lease_begin(self.lease, self._port())

    # -- the doors --------------------------------------------------------------

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
            wake=act(gate.look),
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
            step_pending=lambda: gate.step_allowed,
            empty=lambda: not gate.inside,
            calls=lambda: gate.n_calls + len(gate.inside),
        )
        port.pace = self._door("pace", begin=act(self._begin_pace), end=act(self._end_pace))
        port.work = self._door(
            "lease_work",
            drained=self._drained,
            idle=lambda: not self.busy,
            some_idle=lambda: len(self.busy_when_drained) < CONTEXTS,
        )
        port.mover = self._door(
            "mover",
            restore=act(memory.restore),
            restore_finished=memory.restore_finished,
            refill=act(lambda _: None),
            allow_eviction=memory.allow_eviction,
            evict=act(memory.evict),
            evict_all=act(memory.evict_all),
            preload=act(memory.preload),
            expect=act(lambda _: None),
            keep_host_memory=act(lambda _: None),
            prepare=lambda: self.prepare_ns,
            step=memory.step,
            pause_ns=lambda: MS,
            stop=act(memory.stop),
            link_sample=lambda: ffi.new("struct link_sample *", {"bytes": 1, "ns": 2})[0],
        )
        port.quiet = self._door("lease_quiet", wanted=lambda: self.tasks > 0, now=self._be_quiet)
        return port

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

    def _send_memory(self) -> None:
        self.memory_sent = True

    def _send(self, message: Any, size: int) -> None:
        header = ffi.cast("struct gl_header *", message)
        row = lib.gl_message_of(header.type)
        if row == ffi.NULL or row.size != size or row.sender != lib.GL_CLIENT:
            raise Broken(f"a message of type {header.type} with {size} bytes")
        name = ffi.string(row.name).decode()
        if self.ended:
            raise Broken(f"{name} is said after the end")
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
        self.memory.check_there("the gate opens")

    def check_may_step(self) -> None:
        """One call: because the daemon said so, or since the own work does not finish."""
        if self.ended or not self.holds:
            raise Broken("a call is let in without a lease")
        self.memory.check_there("a call is let in")
        if self.granted and not self.busy and not self.gate.inside:
            raise Broken("a call is let in, and nothing is stuck")

    def check_holds_nothing(self, what: str) -> None:
        if self.holds:
            raise Broken(f"{what} while it holds a lease")

    def _check_finished(self, what: str) -> None:
        gate = self.gate
        if gate.open or gate.step_allowed or gate.inside or self.busy:
            raise Broken(f"{what} while the program works")

    def gate_shut(self) -> None:
        """Was that for a pause that had lasted long enough?"""
        idle = self.now - self.active_at
        self.shut_idle = (
            self.idle_ns != IDLE_NEVER
            and not self.busy
            and not self.gate.inside
            and idle >= min(self.idle_ns, SHORTEST_PAUSE_NS)
        )

    def _sent_request(self, _: Any) -> None:
        if self.holds or not self.gate.at_gate:
            raise Broken("it asks for what it has, or needs not")
        if not self.memory_sent:
            raise Broken("it asks before its memory is known")

    def _sent_released(self, said: Any) -> None:
        if said.epoch != self.holds:
            raise Broken(f"it releases {said.epoch} and holds {self.holds}")
        self._check_finished("it releases")
        if self.memory.there_for_program or self.memory.coming or self.memory.leaving:
            raise Broken("it releases, and memory is on its way or cannot leave")
        if said.reason == lib.GL_RELEASE_IDLE and not self.shut_idle:
            raise Broken("it says that it was idle, and was not, or nobody waits")
        if bool(said.flags & lib.GL_RELEASED_WANTS) != bool(self.gate.at_gate):
            raise Broken("it says wrongly whether threads wait")
        self.holds, self.granted, self.revoked = 0, False, False

    def _sent_restored(self, said: Any) -> None:
        if said.epoch != self.holds or not self.granted:
            raise Broken("it says that the memory of another lease is back")
        self.memory.check_there("it says that all is back")

    def _sent_stuck(self, said: Any) -> None:
        if said.epoch != self.holds or not (self.busy or self.gate.inside):
            raise Broken("it says that it is stuck, and is not")

    # -- what happens ------------------------------------------------------------

    def hear(self, name: str, **fields: Any) -> None:
        """The daemon says something; what it means for who holds what is noted first."""
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

    def _hear_step(self, epoch: int, **_: Any) -> None:
        if not self.holds:
            self.holds = epoch

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the lease; a fault of a fake is raised here."""
        result = function(self.lease, *arguments)
        if self.fault:
            raise self.fault
        if self.lease.epoch != self.holds and self.lease.phase != lib.LEASE_ENDED:
            raise Broken(f"it holds {self.lease.epoch}, as the messages say {self.holds}")
        return result

    def advance(self) -> None:
        self.memory_sent = False
        self.do(lib.lease_ask)
        self.do(lib.lease_advance)
        self.gate.look()

    def run(
        self, ns: int, until: Callable[[], object] = lambda: False, *, settles: bool = False
    ) -> bool:
        """So much time passes, as the client thread lives it; True: it has come to that.
        settles: calls return and work finishes at once."""
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
                raise Broken("it does not pause at all")
            if pause < 0 and self.lease.phase in (lib.LEASE_RESTORING, lib.LEASE_CLOSING):
                raise Broken("it waits for ever for what only it can do")
            self.now = end if pause < 0 else min(self.now + pause, end)
            if self.now >= end:
                return bool(until())
        raise Broken("it works without an end")

    def settle(self) -> None:
        """All that is under way in the program ends."""
        while self.gate.inside:
            self.gate.leave(False)
        self.busy.clear()
        self.memory.room = PIECES

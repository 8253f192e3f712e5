"""Fakes of the rooms around one lease: the gate with the program's threads, and the memory.

Each raises Broken where the lease does something that it must not do then. `process` is the process
(tests/shim/lease/fakes.py) that has them, which knows what the lease may do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.shim.lease.fakes import Process

sys.path.append(str(ROOT / "build" / "meson" / "tests" / "shim" / "lease"))
from _lease_alone import ffi, lib

__all__ = ["IDLE_NEVER", "MS", "PIECES", "Broken", "Gate", "Memory", "ffi", "lib"]

MS = 10**6
IDLE_NEVER: int = lib.GL_IDLE_NEVER
PIECES = 8  # of memory, all of which are evicted at first
COPY_NS = 3 * MS  # how long one piece is being moved


class Broken(AssertionError):
    """The lease has done what it must not do."""


class Gate:
    """The gate, with the threads of the program that are inside or wait at it."""

    def __init__(self, process: Process):
        self.process = process
        self.open = self.bounded = False
        self.step_allowed: int = lib.GATE_STEP_NONE
        self.inside: list[int] = []  # the context of each thread's call
        self.at_gate: list[int] = []
        self.n_calls = self.n_graphs = 0

    def come(self, context: int) -> None:
        """A thread makes a call for a context."""
        self.at_gate.append(context)
        self.let_in()

    def let_in(self) -> None:
        """Threads that wait enter if the gate lets them in."""
        for context in list(self.at_gate):
            takes_step = self.may_step(context)
            if not self.open and not takes_step:
                continue
            if not self.open:
                self.step_allowed = lib.GATE_STEP_NONE
            self.at_gate.remove(context)
            self.inside.append(context)
            self.n_calls += 1
            self.process.active()
            self.process.memory.check_resident("a call passes")

    def may_step(self, context: int) -> bool:
        idle = context not in self.process.busy_when_drained
        return self.step_allowed == lib.GATE_STEP_ANY or bool(self.step_allowed and idle)

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

    def do_step(self, which: int) -> None:
        if which:
            self.process.check_may_step()
        self.step_allowed = which


class Memory:
    """Memory in pieces: `evicted` ones, and one at most that is being restored or evicted.

    `fits` pieces fit on the device. The others are resident.
    """

    def __init__(self, process: Process):
        self.process = process
        self.evicted, self.restoring, self.evicting = PIECES, 0, 0
        self.fits = PIECES
        self.in_residency = False  # from restore_finished() to allow_eviction()
        self.mode = "rest"
        self.to_evict = self.n_restores = self.moves_until = 0

    @property
    def resident(self) -> int:
        return PIECES - self.evicted - self.restoring - self.evicting

    def check_resident(self, what: str) -> None:
        if not self.in_residency or self.evicted or self.restoring or self.evicting:
            raise Broken(f"{what} while memory is evicted")

    def restore(self, _: Any) -> None:
        self.mode = "restore"
        self.n_restores += 1

    def restore_finished(self) -> bool:
        done = not (self.evicted or self.restoring or self.evicting)
        if done:
            self.in_residency, self.mode = True, "rest"
        return done

    def allow_eviction(self) -> bool:
        self.in_residency = False
        return True

    def evict(self, _: Any) -> None:
        self.process.check_nothing_runs("memory is evicted")
        self.mode, self.to_evict = "evict", 3

    def evict_all(self) -> None:
        self.process.check_nothing_runs("all memory is evicted")
        self.mode, self.to_evict = "evict", self.resident

    def preload(self, _: Any) -> None:
        self.process.check_holds_nothing("memory is preloaded")
        if self.mode == "rest":
            self.mode = "restore"

    def step(self) -> bool:
        if self.in_residency and (self.restoring or self.evicting):
            raise Broken("memory is moved while the program may use it")
        if self.process.now < self.moves_until:
            return bool(self.restoring or self.evicting)
        self.evicted += self.evicting
        self.restoring = self.evicting = 0
        self.moves_until = self.process.now + COPY_NS
        if self.mode == "restore" and self.evicted and self.resident < self.fits:
            self.evicted, self.restoring = self.evicted - 1, 1
        elif self.mode == "evict" and self.to_evict and self.resident:
            self.evicting, self.to_evict = 1, self.to_evict - 1
        return bool(self.restoring or self.evicting)

    def stop(self) -> None:
        self.mode, self.to_evict = "rest", 0

"""A job's process as the adversary plays it: its lease is the simulation's (leased/sim/lease.py);
its messages take time, it freezes, hangs, and ends at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from leased.sim.lease import OPEN, RESTORING, SHUT, Lease
from tests.core.scenario import Job

if TYPE_CHECKING:
    from tests.core.world import World

MS = 1_000_000
MOVE_MS = 100  # memory moves in pieces that take so long

Memory = dict[int, tuple[int, int, Optional[int]]]  # by device: size, fixed, resident


class Client(Lease):
    """One process. What it does later it does not do while it is frozen; it catches up then."""

    def __init__(self, world: World, tenant: int, job: Job):
        super().__init__(job.gang, swaps=job.swaps)
        self.world = world
        self.tenant = tenant
        self.job = job
        self.gang = job.gang
        self.left = 0  # of what it computes at a time, ms
        self.began = 0
        self.computed_ns = 0  # in all
        self.size = dict.fromkeys(job.gang, job.size)
        self.fixed = dict.fromkeys(job.gang, 0)
        self.resident = dict.fromkeys(job.gang, 0)
        self.moving = False
        self.alive = True
        self.frozen = False
        self.suspended = False  # Slurm has announced it, and it has not gone on
        self.hangs = False
        self.opened = False  # its gate has, since its last grant
        self.kept: list[Callable[[], None]] = []  # what it will do when it can

    # -- time ---------------------------------------------------------------------

    def after(self, ns: int, act: Callable[[], None]) -> None:
        def do() -> None:
            if not self.alive:
                return
            if self.frozen:
                self.kept.append(do)
            else:
                act()

        self.world.timeline.after(ns, do)

    def thaw(self) -> None:
        self.frozen = False
        kept, self.kept = self.kept, []
        for act in kept:
            act()
        self.world.gates_changed(self.gang)

    def say(self, take: Callable[[World], None]) -> None:
        """A message to the daemon that is there now."""
        world, daemon = self.world, self.world.daemon

        def deliver() -> None:
            if world.daemon is daemon:
                take(world)

        world.timeline.after(self.job.delay * MS, deliver)

    # -- the program --------------------------------------------------------------

    def start(self) -> None:
        for d in self.gang:
            self.fixed[d] = min(self.job.fixed, self.room(d))
        self.hello()
        self.need()

    def need(self) -> None:
        self.left = self.left or self.job.busy
        super().need()

    def compute(self) -> None:
        self.began = self.world.now
        self.later(self.left * MS, self.end)

    def end(self) -> None:
        """It has computed, and goes on on the CPU."""
        self.computes, self.left = False, 0
        self.computed_ns += self.world.now - self.began
        self.turn += 1
        self.after(self.job.pause * MS, self.need)
        self.look_idle()

    def look_idle(self) -> None:
        if self.is_idle and self.idle_ns is not None:
            self.turn += 1
            self.later(self.idle_ns, self.give_up)

    # -- the lease ----------------------------------------------------------------

    def hello(self) -> None:
        epoch, wants = self.epoch, self.wants and not self.epoch
        self.requested = wants
        memory = self.memory()
        self.say(lambda daemon: daemon.hear_hello(self, epoch, wants, memory))

    def resync(self) -> None:
        """A new daemon asks for its state."""
        self.requested, self.idle_ns = False, None
        if self.gate != RESTORING:
            self.forget_orders()
        self.hello()

    def say_requested(self) -> None:
        self.tell_memory()
        self.say(lambda daemon: daemon.hear_request(self))

    def say_restored(self, epoch: int) -> None:
        self.say(lambda daemon: daemon.hear_restored(self, epoch))

    def say_released(self, epoch: int, *, wants: bool) -> None:
        self.tell_memory()
        self.say(lambda daemon: daemon.hear_released(self, epoch, wants))

    def drain(self) -> None:
        drains = self.job.drain if self.computes else 0
        if self.computes:
            self.computed_ns += self.world.now - self.began
            passed = (self.world.now - self.began) // MS
            self.computes, self.left = False, max(1, self.left - passed)
            self.wants = True
        self.after(drains * MS, self.drained)

    def drained(self) -> None:
        if not self.hangs:
            super().drained()

    def set_gate(self, gate: str) -> None:
        super().set_gate(gate)
        self.opened = gate == OPEN or (self.opened and gate != RESTORING)
        self.world.gates_changed(self.gang)

    # -- memory -------------------------------------------------------------------

    def memory(self) -> Memory:
        swaps = self.swaps
        return {
            d: (self.size[d], self.fixed[d], self.resident[d] if swaps else None) for d in self.gang
        }

    def tell_memory(self) -> None:
        memory = self.memory()
        self.say(lambda daemon: daemon.hear_memory(self, memory))

    def there(self, device: int) -> int:
        return self.resident[device]

    def away(self, device: int) -> int:
        return self.size[device] - self.resident[device]

    def room(self, device: int) -> int:
        return max(0, self.world.free(device))

    def piece(self, device: int) -> int:  # noqa: ARG002
        return max(1, self.job.speed * MOVE_MS // 1000)

    def move(self) -> None:
        """Piece by piece for as long as there is something to move, and room."""
        if not self.moving and any(self.step(d) for d in self.gang):
            self.moving = True
            self.after(MOVE_MS * MS, self.moved_a_piece)

    def moved_a_piece(self) -> None:
        self.moving = False
        changed = False
        for d in self.gang:
            step = self.step(d)
            self.resident[d] += step
            self.moved(d, step)
            if step < 0:
                self.world.room_freed(d)
            changed |= step != 0
        if changed:
            self.tell_memory()
        self.go_on()

    def widen(self, device: int) -> None:
        """Another step of the job uses one more device."""
        self.gang = tuple(sorted((*self.gang, device)))
        for amounts in (self.size, self.fixed, self.resident, self.out, self.coming):
            amounts.setdefault(device, 0)

    def resize(self, d: int, size: int) -> None:
        """The program allocates, or frees."""
        self.size[d] = size
        self.resident[d] = min(self.resident[d], size)
        self.tell_memory()
        self.world.room_freed(d)
        self.go_on()

    def set_fixed(self, d: int, fixed: int) -> None:
        """It allocates what cannot move, as far as the driver has room."""
        self.fixed[d] = min(fixed, self.fixed[d] + self.room(d))
        self.tell_memory()
        self.world.room_freed(d)

    def end_process(self) -> None:
        self.alive = False
        self.set_gate(SHUT)
        self.epoch = 0
        for d in self.gang:
            self.resident[d] = self.fixed[d] = self.size[d] = 0
            self.world.room_freed(d)

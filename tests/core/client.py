"""A job's process as the adversary plays it: it speaks the protocol as the interposer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.core.scenario import Job

if TYPE_CHECKING:
    from tests.core.world import World

MS = 1_000_000
MOVE_MS = 100  # memory moves in pieces that take so long

Memory = dict[int, tuple[int, int, int | None]]  # by device: size, fixed, resident

SHUT, RESTORING, OPEN, CLOSING = "shut", "restoring", "open", "closing"


class Client:
    """One process. What it does later it does not do while it is frozen; it catches up then."""

    def __init__(self, world: World, tenant: int, job: Job):
        self.world = world
        self.tenant = tenant
        self.job = job
        self.gang = job.gang
        self.epoch = 0
        self.gate = SHUT
        self.wants = False  # a thread waits at the gate
        self.requested = False
        self.works = False
        self.left = 0  # of what it computes at a time, ms
        self.began = 0
        self.computed_ns = 0  # in all
        self.idle_ns: int | None = None
        self.quiet = 0  # grows whenever it is not idle any more
        self.size = dict.fromkeys(job.gang, job.size)
        self.fixed = dict.fromkeys(job.gang, 0)
        self.resident = dict.fromkeys(job.gang, 0)
        self.out = dict.fromkeys(job.gang, 0)  # bytes to give up
        self.coming = dict.fromkeys(job.gang, 0)  # to bring in before its turn
        self.moving = False
        self.alive = True
        self.frozen = False
        self.suspended = False  # Slurm has announced it, and it has not gone on
        self.hangs = False
        self.kept: list[Callable[[], None]] = []  # what it will do when it can

    # -- time ---------------------------------------------------------------------

    def later(self, ns: int, work: Callable[[], None]) -> None:
        def act() -> None:
            if not self.alive:
                return
            if self.frozen:
                self.kept.append(act)
            else:
                work()

        self.world.at(self.world.now + ns, act)

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

        world.at(world.now + self.job.delay * MS, deliver)

    # -- the program --------------------------------------------------------------

    def start(self) -> None:
        for d in self.gang:
            room = self.world.free(d)
            self.fixed[d] = min(self.job.fixed, max(0, room))
        self.hello()
        self.need()

    def need(self) -> None:
        """The program submits work."""
        self.wants = True
        self.left = self.left or self.job.busy
        if self.gate == OPEN:
            self.begin()
        else:
            self.ask()

    def begin(self) -> None:
        self.wants, self.works, self.began = False, True, self.world.now
        self.quiet += 1
        mine = self.quiet
        self.later(self.left * MS, lambda: self.end() if self.quiet == mine else None)

    def end(self) -> None:
        """It has computed, and goes on on the CPU."""
        self.works, self.left = False, 0
        self.computed_ns += self.world.now - self.began
        self.quiet += 1
        self.later(self.job.pause * MS, self.need)
        self.look_idle()

    def look_idle(self) -> None:
        if self.gate != OPEN or self.works or self.idle_ns is None:
            return
        mine = self.quiet
        self.later(self.idle_ns, lambda: self.give_up() if self.quiet == mine else None)

    def give_up(self) -> None:
        """Idle for long enough while somebody waits."""
        if self.gate == OPEN and not self.works and self.idle_ns is not None:
            self.release()

    # -- the lease ----------------------------------------------------------------

    def hello(self) -> None:
        epoch, wants = self.epoch, self.wants and not self.epoch
        self.requested = wants
        memory = self.memory()
        self.say(lambda daemon: daemon.hear_hello(self, epoch, wants, memory))

    def resync(self) -> None:
        self.requested, self.idle_ns = False, None
        if self.gate != RESTORING:
            self.stop_moving()
        self.hello()

    def ask(self) -> None:
        if not self.epoch and not self.requested and self.wants:
            self.requested = True
            self.tell_memory()
            self.say(lambda daemon: daemon.hear_request(self))

    def take_grant(self, epoch: int, idle_ns: int | None) -> None:
        self.requested, self.idle_ns = False, idle_ns
        if epoch == self.epoch:
            return
        self.epoch = epoch
        self.set_gate(RESTORING)
        self.stop_moving()
        self.move()

    def stop_moving(self) -> None:
        self.out = dict.fromkeys(self.gang, 0)
        self.coming = dict.fromkeys(self.gang, 0)

    def restored(self) -> None:
        self.set_gate(OPEN)
        epoch = self.epoch
        if self.job.swaps:
            self.say(lambda daemon: daemon.hear_restored(self, epoch))
        if self.wants:
            self.begin()
        else:
            self.look_idle()

    def take_contended(self, epoch: int, idle_ns: int | None) -> None:
        if epoch == self.epoch:
            self.idle_ns = idle_ns
            self.quiet += not self.works
            self.look_idle()

    def take_revoke(self, epoch: int) -> None:
        if epoch != self.epoch or self.gate == CLOSING:
            return
        self.quiet += 1
        drains = self.job.drain if self.works else 0
        if self.works:
            self.computed_ns += self.world.now - self.began
            passed = (self.world.now - self.began) // MS
            self.works, self.left = False, max(1, self.left - passed)
            self.wants = True
        self.set_gate(CLOSING)
        self.later(drains * MS, self.drained)

    def drained(self) -> None:
        """What it had submitted is finished, unless that never is."""
        if self.gate == CLOSING and not self.hangs:
            self.release()

    def release(self) -> None:
        epoch, wants = self.epoch, self.wants
        self.epoch, self.idle_ns, self.requested = 0, None, wants
        self.quiet += 1
        self.set_gate(SHUT)
        self.tell_memory()
        self.say(lambda daemon: daemon.hear_released(self, epoch, wants))

    def set_gate(self, gate: str) -> None:
        self.gate = gate
        self.world.gates_changed(self.gang)

    # -- memory -------------------------------------------------------------------

    def memory(self) -> Memory:
        swaps = self.job.swaps
        return {
            d: (self.size[d], self.fixed[d], self.resident[d] if swaps else None) for d in self.gang
        }

    def tell_memory(self) -> None:
        memory = self.memory()
        self.say(lambda daemon: daemon.hear_memory(self, memory))

    def take_evict(self, d: int, amount: int) -> None:
        if not self.epoch:
            self.out[d], self.coming[d] = self.out[d] + amount, 0
            self.move()

    def take_leave(self) -> None:
        if not self.epoch:
            self.out, self.coming = dict(self.resident), dict.fromkeys(self.gang, 0)
            self.move()

    def take_preload(self, d: int, amount: int) -> None:
        if not self.epoch:
            self.coming[d] = 0 if self.out[d] else amount
            self.move()

    def move(self) -> None:
        """Move memory piece by piece for as long as there is something to move, and room."""
        if self.gate == RESTORING and not self.lacks():
            self.restored()
        if not self.moving and self.some_moves():
            self.moving = True
            self.later(MOVE_MS * MS, self.moved)

    def lacks(self) -> bool:
        return self.job.swaps and any(self.size[d] > self.resident[d] for d in self.gang)

    def some_moves(self) -> bool:
        return self.job.swaps and any(self.step(d) for d in self.gang)

    def step(self, d: int) -> int:
        """GiB that come to the device at the next step; below 0: that leave."""
        most = max(1, self.job.speed * MOVE_MS // 1000)
        lacking = self.size[d] - self.resident[d]
        room = max(0, self.world.free(d))
        if self.gate in (RESTORING, OPEN):
            return min(most, lacking, room)
        if self.gate == CLOSING:
            return 0
        if self.out[d] and self.resident[d]:
            return -min(most, self.out[d], self.resident[d])
        return min(most, self.coming[d], lacking, room)

    def moved(self) -> None:
        self.moving = False
        changed = False
        for d in self.gang:
            step = self.step(d)
            self.resident[d] += step
            if step < 0:
                self.out[d] = self.out[d] + step if self.resident[d] else 0
                self.world.room_freed(d)
            elif self.gate == SHUT:
                self.coming[d] = max(0, self.coming[d] - step)
            changed |= step != 0
        if changed:
            self.tell_memory()
        self.move()

    def resize(self, d: int, size: int) -> None:
        """The program allocates, or frees."""
        self.size[d] = size
        self.resident[d] = min(self.resident[d], size)
        self.tell_memory()
        self.world.room_freed(d)
        self.move()

    def set_fixed(self, d: int, fixed: int) -> None:
        """It allocates what cannot move, as far as the driver has room."""
        self.fixed[d] = min(fixed, self.fixed[d] + max(0, self.world.free(d)))
        self.tell_memory()
        self.world.room_freed(d)

    def end_process(self) -> None:
        self.alive = False
        self.set_gate(SHUT)
        self.epoch = 0
        for d in self.gang:
            self.resident[d] = self.fixed[d] = self.size[d] = 0
            self.world.room_freed(d)

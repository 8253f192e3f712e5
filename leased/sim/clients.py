"""A job's process in the simulation: it computes and pauses, waits at its gate, yields, releases.

It answers the daemon's messages as the interposer does. Messages take no time here.
"""

from __future__ import annotations

from collections.abc import Callable

from leased.core.tenant_events import Closed, MemoryChanged, Released, Requested, Restored
from leased.sim.idleness import Idleness
from leased.sim.jobs import Job
from leased.sim.parts import CLOSING, OPEN, RESTORING, SHUT, Node
from leased.sim.swapping import Swapping


class Client:
    """waited_ns: from wanting to compute until doing so, of which moved_ns for its memory."""

    def __init__(self, node: Node, who: int, job: Job):
        self.node = node
        self.who = who
        self.job = job
        self.gate = SHUT
        self.epoch = 0
        self.wants = False  # it waits at its gate
        self.computes = False  # its burst goes on, or its memory comes for it
        self.loads = False
        self.burst = -1
        self.left = 0.0  # of the burst
        self.asked_at = self.granted_at = 0
        self.due = node.timeline.now  # when its burst was to begin, if it is paced
        self.turn = 0  # grows whenever what was planned for later is off
        self.waited_ns = self.moving_ns = 0
        self.gone = False
        self.idleness = Idleness(self)
        self.swapping = Swapping(self) if job.swaps else None

    @property
    def is_idle(self) -> bool:
        """The gate is open, and the job does not want to compute."""
        return self.gate == OPEN and not self.computes and not self.wants

    def later(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, unless the process has changed its mind by then."""
        turn = self.turn

        def do() -> None:
            if self.turn == turn:
                act()

        self.after(ns, do)

    def after(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, whatever happens until then."""
        self.node.timeline.after(ns, act)

    # -- the program ------------------------------------------------------------------

    def start(self) -> None:
        self.tell_memory()
        self.next_burst()

    def next_burst(self) -> None:
        self.burst += 1
        if self.burst == len(self.job.bursts):
            self.finish()
            return
        self.left = self.job.bursts[self.burst][0]
        if self.left:
            self.need()
        else:
            self.pause()

    def need(self) -> None:
        """The job wants to compute."""
        now = self.node.timeline.now
        self.idleness.end()
        self.turn += 1
        self.wants, self.asked_at = True, now
        if self.gate == OPEN:
            self.granted_at = now
            self.begin()
        elif self.gate == SHUT:
            self.node.tell(Requested(self.who))

    def begin(self) -> None:
        self.wants, self.computes = False, True
        self.turn += 1
        load = self.load()
        if load:
            self.loads = True
            self.later(load, self.compute)
        else:
            self.compute()

    def load(self) -> int:
        """Managed memory comes to the GPU. While others compute there too it comes and goes all
        the time, which the processors reckon with. Returns ns."""
        if self.swapping or any(self.node.processors.others_on(gpu) for gpu in self.job.gpus):
            return 0
        memory, size = self.node.memory, self.job.memory
        return max(memory[gpu].page_in(self.who, size) for gpu in self.job.gpus)

    def compute(self) -> None:
        self.loads = False
        now = self.node.timeline.now
        self.waited_ns += now - self.asked_at
        self.moving_ns += now - self.granted_at
        self.node.processors.begin(self.who, self.job, self.left, self.end)

    def end(self) -> None:
        """The burst is over."""
        self.computes = False
        self.left = 0.0
        self.turn += 1
        self.pause()

    def pause(self) -> None:
        self.idleness.begin()
        burst = self.burst

        def over() -> None:
            if self.burst == burst:
                self.next_burst()

        self.after(self.pause_ns(), over)
        if self.gate == CLOSING:
            self.release()
        else:
            self.idleness.look()

    def pause_ns(self) -> int:
        """How long it is until the next burst."""
        gpu, cpu = self.job.bursts[self.burst]
        if not self.job.paced:
            return cpu
        self.due += gpu + cpu
        return max(0, self.due - self.node.timeline.now)

    def finish(self) -> None:
        self.turn += 1
        self.gate, self.gone = SHUT, True
        self.node.ended(self.who)
        for gpu in self.job.gpus:
            self.node.memory[gpu].forget(self.who)
        self.node.tell(Closed(self.who))
        for gpu in self.job.gpus:
            self.node.room_freed(gpu)

    # -- the lease --------------------------------------------------------------------

    def granted(self, epoch: int, idle_ns: int | None) -> None:
        self.epoch, self.idleness.idle_ns = epoch, idle_ns
        self.granted_at = self.node.timeline.now
        self.gate = RESTORING
        if self.job.idle_check:
            self.idleness.check_later(epoch, self.job.idle_check)
        if self.swapping:
            self.swapping.restore()
        else:
            self.restored()

    def restored(self) -> None:
        """All memory that the job needs is on the GPU."""
        self.gate = OPEN
        if self.swapping:
            self.node.tell(Restored(self.who, self.epoch))
        if self.gate == OPEN and self.wants:
            self.begin()
        else:
            self.idleness.look()

    def contended(self, epoch: int, idle_ns: int | None) -> None:
        if epoch == self.epoch:
            self.idleness.idle_ns = idle_ns
            self.idleness.look()

    def revoked(self, epoch: int) -> None:
        """Finish the work that is submitted, and submit no more."""
        if epoch != self.epoch or self.gate == CLOSING:
            return
        self.gate = CLOSING
        self.turn += 1
        if self.computes and not self.loads:
            self.later(self.job.drain, self.drained)
        else:
            self.drained()

    def drained(self) -> None:
        if self.computes:
            self.left = self.left if self.loads else self.node.processors.stop(self.who)
            self.computes = self.loads = False
            if self.left > 0:
                self.wants, self.asked_at = True, self.node.timeline.now
            else:
                self.end()
                return
        self.release()

    def release(self) -> None:
        epoch, self.epoch, self.idleness.idle_ns = self.epoch, 0, None
        self.gate = SHUT
        self.turn += 1
        if self.swapping:
            self.tell_memory()
        self.node.tell(Released(self.who, epoch))
        if self.wants and self.gate == SHUT:
            self.node.tell(Requested(self.who))

    def tell_memory(self) -> None:
        """Report the job's memory and, if it swaps, how much of it is on the GPU."""
        for gpu in self.job.gpus:
            there = self.node.memory[gpu].of(self.who) if self.swapping else None
            self.node.tell(MemoryChanged(self.who, name_of(gpu), self.job.memory, 0, there))


def name_of(gpu: int) -> str:
    """The GPU's name in the arbiter."""
    return f"GPU-{gpu}"

"""A job's process in the simulation: it computes and pauses, waits at its gate, yields, releases.

Messages take no time here.
"""

from __future__ import annotations

from leased.core.events import Closed, Released, Requested, Restored
from leased.sim.idleness import Idleness
from leased.sim.jobs import Job
from leased.sim.lease import CLOSING, OPEN, SHUT
from leased.sim.swapping import Node, Swapping


class Client(Swapping):
    """waited_ns: from wanting to compute until doing so, of which moving_ns for its memory."""

    def __init__(self, node: Node, who: int, job: Job):
        super().__init__(node, who, job)
        self.loads = False  # it computes as soon as its memory has come
        self.burst = -1
        self.left = 0.0  # of the burst
        self.asked_at = self.granted_at = 0
        self.due = node.timeline.now  # when its burst was to begin, if it is paced
        self.waited_ns = self.moving_ns = 0
        self.idleness = Idleness(self, node.timeline, job.idle_check)

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
        self.idleness.end()
        self.turn += 1
        self.asked_at = self.node.timeline.now
        if self.gate == OPEN:
            self.granted_at = self.asked_at
        super().need()

    def compute(self) -> None:
        load = self.load()
        if load:
            self.loads = True
            self.later(load, self.work)
        else:
            self.work()

    def load(self) -> int:
        """Managed memory comes to the GPU. While others compute there too it comes and goes all
        the time, which the processors reckon with. Returns ns."""
        if self.swaps or any(self.node.processors.others_on(gpu) for gpu in self.job.gpus):
            return 0
        memory, size = self.node.memory, self.job.memory
        return max(memory[gpu].page_in(self.who, size) for gpu in self.job.gpus)

    def work(self) -> None:
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
            self.look_idle()

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
        self.granted_at = self.node.timeline.now
        self.idleness.check_later(epoch)
        super().granted(epoch, idle_ns)

    def look_idle(self) -> None:
        self.idleness.look()

    def drain(self) -> None:
        """What runs on the GPU when it is revoked goes on for so long."""
        if self.computes and not self.loads:
            self.later(self.job.drain, self.drained)
        else:
            self.drained()

    def drained(self) -> None:
        if self.computes:
            self.left = self.stopped()
            self.computes = self.loads = False
            if self.left <= 0:
                self.end()
                return
            self.wants, self.asked_at = True, self.node.timeline.now
        super().drained()

    def stopped(self) -> float:
        """It computes no more. Returns what is left of its burst."""
        return self.left if self.loads else self.node.processors.stop(self.who)

    def say_requested(self) -> None:
        self.node.tell(Requested(self.who))

    def say_restored(self, epoch: int) -> None:
        self.node.tell(Restored(self.who, epoch))

    def say_released(self, epoch: int, *, wants: bool) -> None:
        if self.swaps:
            self.tell_memory()
        self.node.tell(Released(self.who, epoch))
        if wants:
            self.node.tell(Requested(self.who))

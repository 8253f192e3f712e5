"""When a job that pauses gives up the GPU before its quantum is over."""

from __future__ import annotations

from leased.sim.lease import Lease
from leased.sim.timeline import Timeline

FIRST_NS = 16_000_000
STEPS = 10
MEMORY = 8  # pauses; older ones count less and less


class Pauses:
    """How long one job's pauses have been, and so after how much of one its interposer gives up the
    GPU; the rule of shim/lease/idle.c.

    A job whose pauses are not known yet yields when it has been idle for as long as a handoff
    takes. If its pauses that lasted a certain time mostly went on for longer than a handoff takes,
    it yields after that time already.
    """

    def __init__(self) -> None:
        self._seen = [0] * STEPS
        self._regret = [0.0] * STEPS

    def note(self, pause_ns: int, handoff_ns: int) -> None:
        """A pause is over, in which a handoff would have taken so long."""
        for i in range(STEPS):
            rest = pause_ns - (FIRST_NS << i)
            if rest <= 0:
                return
            regret = rest / handoff_ns if rest < handoff_ns else 2.0
            self._seen[i] += 1
            self._regret[i] += (regret - self._regret[i]) / min(self._seen[i], MEMORY)

    def enough_ns(self, handoff_ns: int) -> int:
        """After how much of a pause the GPU is given up."""
        for i in range(STEPS):
            if FIRST_NS << i >= handoff_ns:
                break
            if self._seen[i] and self._regret[i] > 1:
                return FIRST_NS << i
        return handoff_ns


class Idleness:
    """every: ns; the job looks only so often, as nvshare's client does; None: it is as exact as the
    interposer."""

    def __init__(self, client: Lease, timeline: Timeline, every: int | None):
        self.client = client
        self.timeline = timeline
        self.every = every
        self.pauses = Pauses()
        self._since = 0
        self._handoff_ns = 0  # the idle_ns that it was told last
        self._awaited = False  # somebody has waited in this pause

    def begin(self) -> None:
        """The job pauses."""
        self._since = self.timeline.now

    def end(self) -> None:
        """The job wants to compute again. What is learnt of a pause is of use where somebody
        waited."""
        if self._awaited:
            self.pauses.note(self.timeline.now - self._since, self._handoff_ns)
            self._awaited = False

    def look(self) -> None:
        """If the job pauses while somebody waits, it yields after a while."""
        client = self.client
        if not client.is_idle or client.idle_ns is None:
            return
        self._awaited, self._handoff_ns = True, client.idle_ns
        if self.every is None:
            client.turn += 1
            end = self._since + self.pauses.enough_ns(client.idle_ns)
            client.later(max(0, end - self.timeline.now), client.give_up)

    def check_later(self, epoch: int) -> None:
        """For as long as the job has this lease: was it idle all the time since the last look?"""
        every = self.every
        if every is None:
            return

        def check() -> None:
            client = self.client
            if client.epoch != epoch:
                return
            idle_for = self.timeline.now - self._since
            if client.is_idle and client.idle_ns is not None and idle_for >= every:
                client.release()
            else:
                self.timeline.after(every, check)

        self.timeline.after(every, check)

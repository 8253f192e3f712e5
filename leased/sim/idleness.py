"""When a job that pauses gives up the GPU before its quantum is over."""

from __future__ import annotations

from leased.sim.parts import Process
from leased.sim.pauses import Pauses


class Idleness:
    """idle_ns: told by the daemon: somebody waits, and the job yields after so much idleness;
    None: nobody waits."""

    def __init__(self, client: Process):
        self.client = client
        self.timeline = client.node.timeline
        self.pauses = Pauses()
        self.idle_ns: int | None = None
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
        if not client.is_idle or self.idle_ns is None:
            return
        self._awaited, self._handoff_ns = True, self.idle_ns
        if client.job.idle_check is None:
            client.turn += 1
            end = self._since + self.pauses.enough_ns(self.idle_ns)
            client.later(max(0, end - self.timeline.now), client.release)

    def check_later(self, epoch: int, every: int) -> None:
        """As nvshare's client does it: was the job idle all the time since it was last checked?
        every: ns."""

        def check() -> None:
            client = self.client
            if client.epoch != epoch:
                return
            idle_for = self.timeline.now - self._since
            if client.is_idle and self.idle_ns is not None and idle_for >= every:
                client.release()
            else:
                self.timeline.after(every, check)

        self.timeline.after(every, check)

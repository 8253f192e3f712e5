"""What stands above the processes of a job: the children of its slurmstepds.

Slurm announces a suspension to them alone, and one that does not handle the signal stops at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from leased.leasing.tenant import Client
from leased.monitors.looks import for_a_slice
from leased.processes.identity import ProcessId

TopOf = Callable[[int], ProcessId | None]
Halted = Callable[[ProcessId], bool]


@dataclass
class Tops:
    """Those of one job that have processes on a GPU below them.

    of: by the pid of a client; None: it is such a child itself, and gets the signal. stopped: which
    were when they were last looked at, those first that were longest ago. ignored: those whose stop
    was no suspension, until they go on.
    """

    of: dict[int, ProcessId | None] = field(default_factory=dict)
    stopped: dict[ProcessId, bool] = field(default_factory=dict)
    ignored: set[ProcessId] = field(default_factory=set)

    def look(self, clients: Iterable[Client], top_of: TopOf, halted: Halted) -> None:
        """Look at as many as are seen within a slice of time."""
        pids = dict.fromkeys(client.pid for client in clients)
        self.of = {pid: top for pid, top in self.of.items() if pid in pids}
        for pid in for_a_slice([pid for pid in pids if pid not in self.of]):
            self.of[pid] = top_of(pid)
        there = {top for top in self.of.values() if top is not None}
        known = [top for top in self.stopped if top in there]
        for top in for_a_slice([*(there - self.stopped.keys()), *known]):
            self.stopped.pop(top, None)
            self.stopped[top] = halted(top)
        self.stopped = {top: was for top, was in self.stopped.items() if top in there}
        self.ignored &= self.found()

    def found(self) -> set[ProcessId]:
        """Those that are stopped."""
        return {top for top, stopped in self.stopped.items() if stopped}

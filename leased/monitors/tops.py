"""What stands above the processes of a job: the children of its slurmstepds.

Slurm announces a suspension to them alone, and one that does not handle the signal stops at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from leased.leasing.tenant import Client
from leased.monitors.looks import for_a_slice
from leased.processes.identity import ProcessId

TopOf = Callable[[int], Optional[ProcessId]]
Halted = Callable[[ProcessId], bool]


@dataclass
class Tops:
    """Those of one job that have processes on a GPU below them.

    of: by the pid of a client; None: it is such a child itself, and gets the signal. stopped: which
    were when they were last looked at, those first that were longest ago. ignored: those whose stop
    was no suspension, until they go on. none_of: processes above which nothing stands.
    """

    of: dict[int, ProcessId | None] = field(default_factory=dict)
    stopped: dict[ProcessId, bool] = field(default_factory=dict)
    ignored: set[ProcessId] = field(default_factory=set)
    none_of: Sequence[Client] = ()

    def has_none(self, clients: Sequence[Client]) -> bool:
        """Whether it is known that nothing stands above these processes, as it stays for each."""
        return bool(clients) and self.none_of == clients

    def look(self, clients: Sequence[Client], top_of: TopOf, halted: Halted) -> None:
        """Look at as many as are seen within a slice of time."""
        if self.has_none(clients):
            return
        pids = dict.fromkeys(client.pid for client in clients)
        self.of = {pid: top for pid, top in self.of.items() if pid in pids}
        for pid in for_a_slice([pid for pid in pids if pid not in self.of]):
            self.of[pid] = top_of(pid)
        there = {top for top in self.of.values() if top is not None}
        self.none_of = [] if there or len(self.of) < len(pids) else list(clients)
        known = [top for top in self.stopped if top in there]
        for top in for_a_slice([*(there - self.stopped.keys()), *known]):
            self.stopped.pop(top, None)
            self.stopped[top] = halted(top)
        self.stopped = {top: was for top, was in self.stopped.items() if top in there}
        self.ignored &= self.found()

    def found(self) -> set[ProcessId]:
        """Those that are stopped."""
        return {top for top, stopped in self.stopped.items() if stopped}

"""Processes of jobs whose connection has ended and which NVML still shows.

The kernel closes the connection of a killed process before the driver frees its memory, so NVML
shows it in one or two more polls. Until then the memory counts as the job's.
"""

from __future__ import annotations

from collections.abc import Collection

LOOKS = 8  # polls; a process that NVML shows for longer still runs, without a connection


class Departed:
    """The departed processes of one device.

    Each process has LOOKS polls once, however often it connects. Otherwise a process could
    reconnect again and again to keep its memory from being counted as no job's.
    """

    def __init__(self) -> None:
        self.looks: dict[int, int] = {}  # by pid: polls in which it had no connection

    def connection_ended(self, pid: int) -> None:
        """A connection of the process has ended."""
        self.looks.setdefault(pid, 0)

    def still_shown(self, shown: Collection[int], clients: Collection[int]) -> set[int]:
        """One poll. Returns the pids that NVML shows and that have no connection, but still count.

        shown: pids that NVML shows. clients: pids with a connection. A process that is no longer
        shown is forgotten.
        """
        self.looks = {pid: n for pid, n in self.looks.items() if pid in shown}
        found = set()
        for pid in self.looks.keys() - set(clients):
            self.looks[pid] += 1
            if self.looks[pid] <= LOOKS:
                found.add(pid)
        return found

"""Processes of jobs whose connection has ended and that NVML still shows.

The kernel closes the connection of a killed process before the driver has taken its memory back,
so NVML shows it for a look or two more. It is no stranger's memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection

LOOKS = 8  # then it lives on without a connection, and is a process like any other


class Departed:
    """Of one device. A process has its looks once, however often it connects: else one that
    lives could keep its memory from being counted."""

    def __init__(self) -> None:
        self.looks: dict[int, int] = {}  # by pid: those in which it was seen without a connection

    def leave(self, pid: int) -> None:
        """A connection of the process has ended."""
        self.looks.setdefault(pid, 0)

    def among(self, shown: Collection[int], clients: Collection[int]) -> set[int]:
        """One look: who of those that NVML shows has no connection any more, and is still its
        job's. Who is shown no more is forgotten."""
        self.looks = {pid: n for pid, n in self.looks.items() if pid in shown}
        found = set()
        for pid in self.looks.keys() - set(clients):
            self.looks[pid] += 1
            if self.looks[pid] <= LOOKS:
                found.add(pid)
        return found

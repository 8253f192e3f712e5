"""How the ranks of a job on several nodes (tests/slurm/rank.py) get on, and whether half of a job
ran beside another one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.processes import wait_until

Row = tuple[int, int, int, int]  # of an emulated GPU's trace


@dataclass
class Ranks(ABC):
    """number: Slurm's, of the job. nodes: by their places, those of its ranks. wait_s: how long
    they may take for some steps."""

    number: int
    name: str
    nodes: Sequence[int]
    wait_s = 120.0

    @abstractmethod
    def file(self, rank: int, kind: str) -> Path:
        """Which the rank writes, or looks for."""

    @property
    @abstractmethod
    def log(self) -> str:
        """What the job has printed."""

    @abstractmethod
    def end_state(self) -> str:
        """Wait until Slurm has ended the job; the state that it has then."""

    @abstractmethod
    def daemons_said(self) -> list[str]:
        """By node: the end of what its daemon has logged."""

    @abstractmethod
    def trace(self, rank: int) -> list[Row]:
        """Who computed when on the GPUs of the rank's node."""

    def steps(self, rank: int) -> int:
        """How many the rank has done."""
        file = self.file(rank, "steps")
        return file.stat().st_size if file.exists() else 0

    def gets_on(self, more: int = 3) -> None:
        """Wait until all its ranks have done so many more steps. AssertionError: what they and the
        daemons say instead."""
        wanted = [self.steps(rank) + more for rank in range(len(self.nodes))]

        def on() -> bool:
            return all(self.steps(rank) >= least for rank, least in enumerate(wanted))

        try:
            wait_until(f"job {self.number} to get on", on, timeout=self.wait_s)
        except TimeoutError as fault:
            raise AssertionError(f"{fault}: {self.log}{self.daemons_said()}") from None

    def ends(self, *, quiet: bool = True) -> None:
        """Tell it to end, and wait for that. quiet: it has said nothing. AssertionError: not all of
        its ranks were right."""
        self.file(0, "end").touch()
        state = self.end_state()
        done = [self.file(rank, "done").exists() for rank in range(len(self.nodes))]
        assert (state, all(done)) == ("COMPLETED", True), self.log
        assert not (quiet and self.log), self.log

    def slices(self, rank: int) -> list[tuple[int, int]]:
        """When the rank computed, in ns of a clock that all nodes share here."""
        pid = int(self.file(rank, "pid").read_text())
        return [(start, end) for _, who, start, end in self.trace(rank) if who == pid]


def halves(gangs: Sequence[Ranks]) -> list[tuple[str, str, int]]:
    """Whose work overlaps that of another job on another node of its own, for how many ns."""
    work = {g.name: [merged(g.slices(rank)) for rank in range(len(g.nodes))] for g in gangs}
    found = []
    for gang in gangs:
        for other in gangs:
            ns = sum(
                overlap(work[gang.name][rank], work[other.name][there])
                for rank, node in enumerate(gang.nodes)
                for there, place in enumerate(other.nodes)
                if other is not gang and place != node and place in gang.nodes
            )
            found += [(gang.name, other.name, ns)] if ns else []
    return found


def merged(slices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that follow each other at once as one, in order of time."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(slices):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def overlap(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """For how many ns two ordered lists of times overlap."""
    total = at = 0
    for start, end in one:
        while at < len(other) and other[at][1] <= start:
            at += 1
        for begin, until in other[at:]:
            if begin >= end:
                break
            total += min(end, until) - max(start, begin)
    return total

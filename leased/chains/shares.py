"""How the components of a chain are kept to a division of their GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from leased.chains.search import WHOLE
from leased.slices.job import LONG_US


class Shares(Protocol):
    """One way to do it."""

    def apply(self, uuid: str, division: Mapping[int, int]) -> None:
        """By process, what part of the device's SMs it has at most from now on, per cent. Where all
        have all of them, and where there is none, they run as they would without a chain."""


def slices(division: Mapping[int, int]) -> dict[int, int]:
    """Where the processes of the division take turns on all SMs: the time slice of each, in us. It
    is the most that a process has while others have work too, and who waits gives the rest of its
    slice away. Empty in the plain division: leased/slices says which slices jobs have then."""
    if all(part == WHOLE for part in division.values()):
        return {}
    return {process: LONG_US * part // WHOLE for process, part in division.items()}

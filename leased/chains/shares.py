"""How the components of a chain are kept to a division of their GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from leased.chains.search import STEP, WHOLE
from leased.slices.job import LONG_US


class Shares(Protocol):
    """One way to do it."""

    def apply(self, uuid: str, division: Mapping[int, int]) -> None:
        """By process, what part of the device's SMs it has at most from now on, per cent. Where all
        have all of them, and where there is none, they run as they would without a chain."""


class Part(NamedTuple):
    """Of a device's multiprocessors: how much, per cent, and where it begins, per mille of them."""

    percent: int = WHOLE
    begins: int = 0


def parts(division: Mapping[int, int]) -> dict[int, Part]:
    """Where the processes of the division run at once on parts of the SMs: the part of each. They
    lie side by side as far as they fit, so that a process has the SMs for itself that others do not
    use; one with all of them has those of the others too."""
    found, at = {}, 0
    for process, percent in division.items():
        begins = at if at + percent <= WHOLE else WHOLE - percent
        found[process] = Part(percent, 10 * begins)
        at = (begins + percent) % WHOLE if percent < WHOLE else at
        at = at if at + STEP <= WHOLE else 0
    return found


def slices(division: Mapping[int, int]) -> dict[int, int]:
    """Where the processes of the division take turns on all SMs: the time slice of each, in us. It
    is the most that a process has while others have work too, and who waits gives the rest of its
    slice away. Empty in the plain division: leased/slices says which slices jobs have then."""
    if all(part == WHOLE for part in division.values()):
        return {}
    return {process: LONG_US * part // WHOLE for process, part in division.items()}

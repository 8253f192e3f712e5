"""What has happened since the last look along the line that may let in a waiter."""

from __future__ import annotations

from leased.core.cohort import Cohort
from leased.core.line import Place


class Openings:
    """Of the devices `watched`, as bits; what happens elsewhere is not noted.

    wide: something that may let in anybody, such as a device that is free again. left: the first
    place from which a cohort has gone, or moved; None: none has. came: cohorts that stand at
    another place than before, by number.
    """

    def __init__(self) -> None:
        self.watched = 0
        self.wide = False
        self.left: Place | None = None
        self.came: dict[int, Cohort] = {}

    def watch(self, mask: int) -> None:
        """Note what happens on these devices from now on, and forget what was noted."""
        self.watched, self.wide, self.left = mask, False, None
        if self.came:
            self.came = {}

    def open(self, mask: int) -> None:
        """On these devices any waiter may be let in that could not be before."""
        if mask & self.watched:
            self.wide = True

    def leave(self, place: Place, cohort: Cohort) -> None:
        """The cohort's first waiter does not stand at that place any more."""
        if cohort.mask & self.watched:
            self.came.pop(cohort.number, None)
            if self.left is None or place < self.left:
                self.left = place

    def come(self, cohort: Cohort) -> None:
        """The cohort's first waiter stands at a new place."""
        if cohort.mask & self.watched:
            self.came[cohort.number] = cohort

"""What the controller of classes (leased/classes) settles at beside one online task.

It is run for LOOKS looks on the model that its own tests use (tests/classes/model.py): the online
task's work takes longer in proportion to the duty of the offline one. What it settles at is then
taken for each minute in which both have work. So the stops by which it learns what the online task
takes alone are in it, and that it takes some minutes to get there is not.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from leased.matching.assign import SLOWDOWN
from leased.slices.job import ALWAYS
from tests.classes.model import Throttling, steer

LOOKS = 1200


class Settled(NamedTuple):
    """duty: the part of the time in which the offline task may run. slowdown: of the online one."""

    duty: float
    slowdown: float


@cache
def settle(uncut: float) -> Settled:
    """uncut: the slowdown of the online task where the offline one may always run."""
    run = steer(Throttling(uncut - 1, seed=7), LOOKS, SLOWDOWN - 1)
    return Settled(run.lately(run.duties) / ALWAYS, 1 + run.lately(run.slowdowns))

"""Which slices jobs have beside an online one, by what this does."""

from __future__ import annotations

import pytest

from leased.classes.controller import LOOKS, SEVERAL_US, Classed, Controller
from leased.config.options import NONE, OFFLINE, ONLINE
from leased.slices.job import ALWAYS, SHORT_US, Seen

LOOK_NS = 500_000_000


def slices(wanted: list[float | None], beside: str) -> list[int]:
    """At each look, of a job of that class beside an online one that has unfinished work in such a
    part of the time."""
    controller, found = Controller(0.05), []
    for n, part in enumerate(wanted):
        jobs = {
            1: Classed(Seen(None, True, True, wanted=part), ONLINE),
            2: Classed(Seen(None, True, True, wanted=1.0), beside),
        }
        chosen = controller.look(n * LOOK_NS, jobs)[2]
        assert beside == OFFLINE or chosen.duty == ALWAYS
        found.append(chosen.slice_us)
    return found


def test_a_job_without_a_class_has_a_part_beside_an_online_one_that_never_idles() -> None:
    serves, works = [0.3] * 4, [1.0] * (LOOKS + 3)
    found = slices([*serves, *works, None, *serves], NONE)
    short = [SHORT_US] * (len(serves) + LOOKS - 1)
    assert found == [*short, *[SEVERAL_US] * 5, *[SHORT_US] * len(serves)]


@pytest.mark.parametrize(
    ("wanted", "beside"),
    [([1.0, 0.5] * LOOKS, NONE), ([None] * 2 * LOOKS, NONE), ([1.0] * 2 * LOOKS, OFFLINE)],
)
def test_it_has_what_an_online_one_leaves_otherwise(
    wanted: list[float | None], beside: str
) -> None:
    assert set(slices(wanted, beside)) == {SHORT_US}

"""What gangs connect, followed link by link, is what one look at all links says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

from leased.core.cohort import Cohort
from leased.core.components import Components, Link
from leased.core.seats import SEATS, Seats

DEVICES, STEPS = 7, 2000


def connected(mask: int, links: Iterable[Link]) -> int:
    """By going on until nothing is added."""
    before = 0
    while before != mask:
        before = mask
        for one, other in links:
            if mask & (one | other):
                mask |= one | other
    return mask


def test_links_come_and_go() -> None:
    r = random.Random(1)
    components, gangs = Components(), list[tuple[Link, ...]]()
    for _ in range(STEPS):
        if gangs and r.random() < 0.5:
            components.remove(gangs.pop(r.randrange(len(gangs))))
        else:
            bits = sorted(1 << n for n in r.sample(range(DEVICES), r.randint(1, 3)))
            gangs.append(tuple(pairwise(bits)))
            components.add(gangs[-1])
        mask = r.getrandbits(DEVICES)
        assert components.reached(mask) == connected(mask, [x for gang in gangs for x in gang])
    for gang in gangs:
        components.remove(gang)
    assert not any(vars(components).values()), "nothing of them is left"


def test_a_gang_that_needs_no_taken_device() -> None:
    """Also where they need more than one row; and rows go with those who sat in them."""
    r = random.Random(2)
    seats, seated = Seats(), list[Cohort]()
    for number in range(3 * SEATS):
        mask = r.randint(1, (1 << DEVICES) - 1)
        seated.append(Cohort(number, (("d0",), "on", False, True), mask))
        seats.add(seated[-1])
        if r.random() < 0.3:
            seats.remove(seated.pop(r.randrange(len(seated))))
        taken, wanted = r.getrandbits(DEVICES), r.getrandbits(DEVICES)
        free = {c.number for c in seated if not c.mask & taken and c.mask & wanted}
        assert {c.number for c in seats.free(wanted, taken)} == free
        assert len(seats) == len(seated)
    for cohort in seated:
        seats.remove(cohort)
    assert not any(vars(seats).values()), "nothing of them is left"

"""Groups of tenants that are alike to all who compete with them.

A cohort is all tenants with the same gang, lock and kind of memory, of which their policy also
says the same about running beside others. Whoever is in the way of one of them is in the way of
all, so questions are asked of cohorts and not of tenants. Devices are bits of a number.
"""

from __future__ import annotations

from itertools import pairwise

from leased.core.line import Line, Place
from leased.core.state import Device, Tenant

# What a cohort heeds. Two may run on one device at once if either is FREE or both SHARE.
FREE, SHARE, ALONE = range(3)


class Cohort:
    """waiters: all who wait. waiting: of them those that could run, by their places. first, place:
    the first of these and its place. priced: what Turns has found out about them; None: nothing,
    since others wait now. holding: the holders. Of these, `calm` have not been told that a waiter
    needs their devices, `told` have been, and the others are revoked. begun: a number that grows
    with each cohort that begins to hold. most_cost: the highest cost of a handoff for which a
    holder was told. waiter: the first waiter for which they were told. watched: its devices. dear:
    the one of them on which the handoff to it last cost too much to be news. links: the devices as
    a chain of pairs. devices: what is known of each device of the gang, in its order; Cohorts sets
    it.
    """

    __slots__ = (
        "begun", "beside", "bits", "calm", "dear", "devices", "first", "gang", "heeds",
        "holding", "links", "lock", "mask", "members", "most_cost", "number", "place", "priced",
        "swaps", "told", "waiter", "waiters", "waiting", "watched",
    )  # fmt: skip

    def __init__(self, number: int, key: tuple[tuple[str, ...], str, bool, bool], mask: int):
        self.number = number
        self.gang, self.lock, self.swaps, self.beside = key
        self.mask = mask
        self.bits = tuple(1 << n for n in range(mask.bit_length()) if mask >> n & 1)
        self.links = tuple(pairwise(self.bits))
        self.devices: tuple[Device, ...] = ()
        self.heeds = FREE
        self.members = 0
        self.waiters: dict[int, Tenant] = {}
        self.waiting: Line[Tenant] = Line()
        self.first: Tenant | None = None  # of those who wait
        self.place: Place = 0  # the first one's
        self.priced: tuple[int, int] | None = None
        self.holding: dict[int, Tenant] = {}
        self.calm: dict[int, Tenant] = {}
        self.told: dict[int, Tenant] = {}
        self.begun = 0
        self.most_cost = 0
        self.waiter: Tenant | None = None
        self.dear: str | None = None
        self.watched = 0


def compatible(one: Cohort, other: Cohort) -> bool:
    """May tenants of both hold a lease on the same device at once?"""
    return FREE in (one.heeds, other.heeds) or one.heeds == other.heeds == SHARE


def in_the_way(one: Cohort, other: Cohort) -> bool:
    """Must holders of the other release before a tenant of the one can hold its gang?"""
    return one.mask & other.mask != 0 and not compatible(one, other)

"""Memory that moves need not fit, but where it fits is better."""

from __future__ import annotations

from leased.placement.api import Device, NoDevice, Placed, Request
from tests.bench.placing.oversubscribed import place

FULL = Device("full", 10, (Request(0.2, 8),))
LOOSE = Device("loose", 10, (Request(0.1, 1),))


def test_a_device_where_memory_fits_is_taken_first() -> None:
    assert place(Request(0.1, 5), [FULL, LOOSE]) == Placed(LOOSE)


def test_memory_that_fits_nowhere_keeps_nobody_away() -> None:
    assert place(Request(0.1, 10), [FULL, LOOSE]) == Placed(FULL)


def test_labels_shares_and_the_size_of_the_device_still_count() -> None:
    assert isinstance(place(Request(0.1, 11), [FULL, LOOSE]), NoDevice)
    assert isinstance(place(Request(0.9, 10), [FULL]), NoDevice)
    assert isinstance(place(Request(0.1, 10, exclusion="x"), [FULL]), NoDevice)

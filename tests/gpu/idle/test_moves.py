"""What is read of the lines that interposers write when memory moves."""

from __future__ import annotations

import pytest

from tests.gpu.idle.moves import GIB, Event, Link, Moved, moved, read_events

SAID = """\
a program's own words: evicted 7 KiB, copied 7
gpu-lease[42]: 10.000 hears WELCOME
gpu-lease[42]: 10.500 hears EVICT
gpu-lease[42]: 10.520 hears EVICT
gpu-lease[42]: 10.550 evicted 4096 KiB, copied 1024
gpu-lease[42]: 11.000 hears GRANT
gpu-lease[42]: 11.200 restored 4096 KiB, copied 4096
gpu-lease[42]: 12.000 hears LEAVE
gpu-lease[42]: 12.100 evicted 8192 KiB, copied 0
"""
MIB = 1 << 20


def test_events_have_their_time_and_bytes() -> None:
    events = read_events(SAID)
    assert len(events) == 8
    assert events[1] == Event(10.5, "EVICT")
    assert events[3] == Event(10.55, "evicted", 4 * MIB, MIB)


@pytest.mark.parametrize(
    ("what", "since", "until", "found"),
    [
        ("evicted", 10.4, 11.5, Moved(4 * MIB, MIB, 0.05)),
        ("restored", 10.4, 11.5, Moved(4 * MIB, 4 * MIB, 0.2)),
        ("evicted", 10.4, 13, Moved(12 * MIB, MIB, 1.6)),
        ("evicted", 11.9, 13, Moved(8 * MIB, 0, 0.1)),
        ("restored", 11.9, 13, Moved(0, 0, 0)),
    ],
)
def test_only_what_moved_within_the_time_counts(
    what: str, since: float, until: float, found: Moved
) -> None:
    got = moved(read_events(SAID), what, since, until)
    assert (got.size, got.copied) == (found.size, found.copied)
    assert got.seconds == pytest.approx(found.seconds)


def test_both_directions_share_the_link() -> None:
    link = Link(into=50, out=40, duplex=80)
    assert link.seconds(50 * GIB) == pytest.approx(1)
    assert link.seconds(0, 40 * GIB) == pytest.approx(1)
    assert link.seconds(40 * GIB, 40 * GIB) == pytest.approx(1)
    assert link.seconds(45 * GIB, 45 * GIB) == pytest.approx(1.125)

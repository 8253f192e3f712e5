"""A job that waits has a short turn before its time limit, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.core.events import DrainSet, Event, Requested, Signalled
from leased.monitors.time_limits import BEFORE_S, TimeLimits
from leased.slurm.commands import JobState
from tests.support.node_requests import UUIDS, Node

BEGAN = 1_700_000_000.0
LIMIT_S = 600.0


class Watched:
    """Two jobs, of which the second waits for its GPU."""

    def __init__(self, node: Node):
        self.leases = node.leases
        for job in (1, 2):
            node.register(job)
        self.leases.run(DrainSet(UUIDS[0], True), Requested(2))
        self.now = BEGAN
        self.signalled: list[int] = []
        self.limits = TimeLimits(self.leases, lambda: self.now)
        self.leases.run = self.ran  # type: ignore[method-assign]

    def ran(self, *events: Event) -> None:
        self.signalled += [e.tenant for e in events if isinstance(e, Signalled)]

    def looks(self, after_s: float, end: float = BEGAN + LIMIT_S) -> list[int]:
        """Who has had a turn so far, by so long after the beginning."""
        said = dict.fromkeys((1, 2, 3), JobState("RUNNING", BEGAN, end))
        self.limits.heard(said, {1: BEGAN, 2: BEGAN})
        self.now = BEGAN + after_s
        self.limits.beat()
        return self.signalled


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    node = Node(tmp_path)
    yield Watched(node)
    node.store.close()


def test_who_waits_has_one_turn_before_its_limit(watched: Watched) -> None:
    assert watched.looks(LIMIT_S - BEFORE_S - 1) == []
    assert watched.looks(LIMIT_S - BEFORE_S) == [2]
    assert watched.looks(LIMIT_S - 1) == [2]


def test_another_limit_is_another_turn(watched: Watched) -> None:
    assert watched.looks(LIMIT_S) == [2]
    assert watched.looks(LIMIT_S, BEGAN + 2 * LIMIT_S) == [2]
    assert watched.looks(2 * LIMIT_S, BEGAN + 2 * LIMIT_S) == [2, 2]


def test_a_clock_of_slurm_that_is_ahead_makes_it_no_later(watched: Watched) -> None:
    said = {2: JobState("RUNNING", BEGAN + 90, BEGAN + 90 + LIMIT_S)}
    watched.limits.heard(said, {2: BEGAN})
    watched.now = BEGAN + LIMIT_S - BEFORE_S
    watched.limits.beat()
    assert watched.signalled == [2]


def test_a_job_without_a_limit_has_none(watched: Watched) -> None:
    watched.limits.heard({2: JobState("RUNNING", BEGAN)}, {2: BEGAN})
    watched.now = BEGAN + 365 * 24 * 3600
    watched.limits.beat()
    assert watched.signalled == []

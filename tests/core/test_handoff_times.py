"""A handoff lasts from the revoke, or what came later, until the next holder can work."""

from __future__ import annotations

from leased import policy
from leased.core.actions import Action, Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import MemoryChanged, Opened, Released, Requested, Restored, Tick
from leased.usage.handoff_times import BOUNDS_NS, MS, HandoffTimes, bucket_of

HAS, ROOM = 80, 100
QUANTUM = 1000 * MS


class Played:
    """Two jobs that take turns, on a device that has no room for both."""

    def __init__(self, *, swaps: bool):
        self.arbiter = Arbiter({"d0": ROOM}, policy.make)
        for job in (1, 2):
            self.arbiter.handle(Opened(job, ("d0",), "auto", QUANTUM, swaps), 0)
            resident = 0 if swaps else None
            self.arbiter.handle(MemoryChanged(job, "d0", HAS, 0, resident), 0)

    def ask(self, job: int, now: int) -> list[Action]:
        return self.arbiter.handle(Requested(job), now)

    def release(self, job: int, now: int) -> list[Action]:
        return self.arbiter.handle(Released(job, self.arbiter.tenants[job].granted), now)

    def restored(self, job: int, now: int) -> None:
        self.arbiter.handle(Restored(job, self.arbiter.tenants[job].granted), now)

    @property
    def times(self) -> HandoffTimes:
        return self.arbiter.devices["d0"].handoff_times

    @property
    def took(self) -> tuple[int, int]:
        """How many handoffs there were, and their ns together."""
        return sum(self.times.counts), self.times.sum_ns


def test_from_the_revoke_to_the_grant_where_memory_is_managed() -> None:
    played = Played(swaps=False)
    played.ask(1, 0)
    played.ask(2, 5 * MS)
    due = played.arbiter.next_deadline()
    assert due is not None
    actions = played.arbiter.handle(Tick(), due)
    assert [type(action) for action in actions] == [Revoke]
    assert played.took == (0, 0)
    actions = played.release(1, due + 30 * MS)
    assert any(isinstance(action, Grant) for action in actions)
    assert played.took == (1, 30 * MS)


def test_until_swapped_memory_is_back() -> None:
    played = Played(swaps=True)
    played.ask(1, 0)
    played.restored(1, 0)
    played.ask(2, 5 * MS)
    due = played.arbiter.next_deadline()
    assert due is not None
    played.arbiter.handle(Tick(), due)
    played.release(1, due + 30 * MS)
    assert played.took == (0, 0)
    played.restored(2, due + 70 * MS)
    assert played.took == (1, 70 * MS)
    played.restored(2, due + 90 * MS)
    assert played.took == (1, 70 * MS), "each once"


def test_from_the_release_of_one_that_was_idle() -> None:
    played = Played(swaps=True)
    played.ask(1, 0)
    played.restored(1, 0)
    played.ask(2, 5 * MS)
    played.release(1, 8 * MS)
    played.restored(2, 20 * MS)
    assert played.took == (1, 12 * MS)


def test_from_the_request_where_nobody_had_the_device() -> None:
    played = Played(swaps=True)
    played.ask(1, 0)
    played.restored(1, 0)
    played.release(1, 8 * MS)
    played.ask(2, 500 * MS)
    played.restored(2, 540 * MS)
    assert played.took == (1, 40 * MS)


def test_the_first_holder_and_the_same_again_are_no_handoffs() -> None:
    played = Played(swaps=True)
    for now in (0, 100 * MS):
        played.ask(1, now)
        played.restored(1, now + MS)
        played.release(1, now + 2 * MS)
    assert played.took == (0, 0)


def test_a_holder_that_ends_before_it_could_work_counts_for_nothing() -> None:
    played = Played(swaps=True)
    played.ask(1, 0)
    played.restored(1, 0)
    played.release(1, MS)
    played.ask(2, 2 * MS)
    played.release(2, 3 * MS)
    assert played.took == (0, 0)


def test_a_bound_belongs_to_its_bucket() -> None:
    times = HandoffTimes()
    for ns in (0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1], BOUNDS_NS[-1] + 1):
        times.add(ns, bucket_of(ns))
    assert times.counts[:2] == [2, 1]
    assert times.counts[-2:] == [1, 1]

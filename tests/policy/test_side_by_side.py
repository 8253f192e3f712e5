"""Jobs whose memory fits run side by side, those with shares where time slices can keep these."""

from __future__ import annotations

from dataclasses import replace

from leased import policy
from leased.core.actions import Action, Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Channels,
    Closed,
    Event,
    LockSet,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Tick,
)
from tests.core.scenario import Job
from tests.core.world import S, World
from tests.policy.watched import Watched, greedy


def auto(*jobs: Job) -> list[Job]:
    """They may run side by side, and finish at once what they have submitted."""
    return [replace(job, lock="auto", drain=0) for job in jobs]


class Node:
    """A device, and jobs 1 to n with these requests and limits."""

    def __init__(self, *shares: tuple[float, float]):
        self.a = Arbiter({"d0": 100}, policy.make)
        self.now = 0
        for n, (request, limit) in enumerate(shares, 1):
            self.do(Opened(n, ("d0",), "auto", S, request=request, limit=limit))

    def do(self, *events: Event) -> list[Action]:
        """Jobs release at once what is revoked, and ask for it again."""
        done: list[Action] = []
        for event in events:
            actions = self.a.handle(event, self.now)
            done += actions
            for revoked in [x for x in actions if isinstance(x, Revoke)]:
                done += self.do(Released(revoked.tenant, revoked.epoch), Requested(revoked.tenant))
        return done

    def run(self, until: int) -> list[Action]:
        """Let time pass."""
        done: list[Action] = []
        while (due := self.a.next_deadline()) is not None and due <= until:
            self.now = due
            done += self.do(Tick())
        self.now = until
        return done

    @property
    def holders(self) -> list[int]:
        return sorted(self.a.devices["d0"].holders)


def test_jobs_without_shares_run_side_by_side_and_are_never_told_to_stop() -> None:
    node = Node((0, 1), (0, 1), (0, 1))
    node.do(*map(Requested, (1, 2, 3)))
    assert node.run(3600 * S) == []
    assert node.holders == [1, 2, 3]


def test_shares_are_kept_by_turns_where_a_job_that_asks_cannot_be_controlled() -> None:
    node = Node((0.3, 1), (0.4, 0.6), (0, 1), (0, 1))
    node.do(Channels(1, True), Channels(2, True), Requested(1), Requested(2))
    assert node.holders == [1, 2], "jobs that have never asked do not count"
    node.do(Requested(3))
    assert len(node.holders) == 1
    node.do(Channels(3, True))
    assert node.holders == [1, 2, 3]
    node.do(Channels(1, False))
    assert len(node.holders) == 1
    node.do(Closed(1))
    assert node.holders == [2, 3], "and those that have ended do not either"


def test_no_lease_ends_for_a_limit_that_slices_keep() -> None:
    node = Node((0, 0.2), (0.3, 0.5))
    node.do(Channels(1, True), Channels(2, True), Requested(1), Requested(2))
    assert node.run(100 * S) == []


def test_what_a_job_has_had_side_by_side_is_not_held_against_it_by_turns() -> None:
    """It was alone for 100 s in all, with a limit that slices kept. By leases it would have to
    wait for minutes now."""
    node = Node((0, 0.2))
    node.do(Channels(1, True), Requested(1))
    node.run(100 * S)
    node.do(Channels(1, False))
    grants = [x for x in node.run(110 * S) if isinstance(x, Grant)]
    assert len(grants) > 1


def test_a_lock_of_the_site_turns_slices_off() -> None:
    node = Node((0.3, 1), (0.3, 0.5))
    node.do(Channels(1, True), Channels(2, True), Requested(1), Requested(2))
    node.do(LockSet("d0", "on"))
    assert len(node.holders) == 1
    assert node.run(10 * S), "they take turns"
    node.do(LockSet("d0", None))
    assert node.holders == [1, 2]


def test_jobs_with_shares_take_turns_while_their_memory_does_not_fit() -> None:
    node = Node((0.6, 1), (0.4, 1))
    node.do(Channels(1, True), Channels(2, True), Requested(1), Requested(2))
    node.do(MemoryChanged(1, "d0", 60), MemoryChanged(2, "d0", 60))
    assert len(node.holders) == 1


class Sliced(Watched):
    """The work of these jobs can be divided by slices until some second."""

    def __init__(self, jobs: list[Job], seconds: int, until: int):
        self.until = until
        super().__init__(jobs, seconds)

    def set_policies(self) -> None:
        super().set_policies()
        self.timeline.at(1, lambda: self.tell_all(True))
        self.timeline.at(self.until * S, lambda: self.tell_all(False))

    def tell_all(self, controlled: bool) -> None:
        for tenant in list(self.a.tenants):
            World.do(self, Channels(tenant, controlled))


def test_shares_hold_soon_after_slices_have_ended() -> None:
    world = Sliced(auto(greedy(0.6), greedy(0.2, 0.3), greedy()), 60, until=20)
    world.check(2, 20, dict.fromkeys(range(3), 1 / 3))  # as the arbiter divides it, without slices
    world.check(21, 60, {0: 0.6, 1: 0.2, 2: 0.2}, error=0.03)

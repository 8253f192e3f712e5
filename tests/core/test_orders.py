"""Tenants whose leases others order, beside tenants that take their own."""

from __future__ import annotations

import random

import pytest

from leased import policy
from leased.core import orders
from leased.core.actions import Answer, Contend, Forfeit, Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Adopted,
    Closed,
    DrainSet,
    Event,
    Frozen,
    LockSet,
    MemoryChanged,
    Opened,
    Ordered,
    Rejoined,
    Released,
    Requested,
    Restored,
    Thawed,
    Tick,
)
from tests.core.test_short_turns import QUANTUM, Node, S

JOB = 9  # whose leases are ordered


class Orders(Node):
    """Beside jobs that always want what they have there is JOB, which was ordered to REST."""

    def __init__(self, *gangs: str, gang: str = "0", name: str = "fcfs", swaps: bool = False):
        super().__init__(*gangs, name=name, swaps=swaps)
        uuids = tuple(f"d{d}" for d in gang)
        self.does(Opened(JOB, uuids, "auto", QUANTUM, swaps, ordered=True))

    def order(self, order: str, at: int | None = None) -> list[str]:
        """What is answered to it, at once."""
        before = len(self.events)
        self.does(Ordered(JOB, order), at)
        return self.answers(before)

    def answers(self, since: int = 0) -> list[str]:
        return [one.answer for _, one in self.events[since:] if isinstance(one, Answer)]

    def until_answer(self, answer: str, end: int) -> int:
        """When it is given first, in s."""
        self.until(end)
        return next(at for at, one in self.events if one == Answer(JOB, answer)) // S

    def revoked(self) -> list[int]:
        return [one.tenant for _, one in self.events if isinstance(one, Revoke)]


def test_it_has_no_lease_by_asking_for_one() -> None:
    node = Orders()
    node.does(Requested(JOB))
    node.until(10 * QUANTUM)
    assert (node.holders(), node.turns(), node.answers()) == ([], [], [])


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("name", policy.names())
def test_a_turn(name: str, swaps: bool) -> None:
    """Its turn comes when the holder's quantum is over, and until it is to hold its devices the
    holder has them."""
    node = Orders("0", name=name, swaps=swaps)
    if swaps:
        node.does(MemoryChanged(JOB, "d0", 60, 0, 0))
    node.does(Requested(JOB))
    assert node.order(orders.LINE, 10 * S) == []
    ready = node.until_answer(orders.READY, 3 * QUANTUM)
    assert ready in (QUANTUM // S, QUANTUM // S + 10)
    assert (node.holders(), node.revoked()) == ([1], [])
    assert node.order(orders.HOLD) == [orders.HELD]
    assert (node.holders(), node.revoked()) == ([JOB], [1])
    assert (0, JOB) not in [(0, tenant) for _, tenant in node.turns()], "it is not told yet"
    assert node.order(orders.RUN) == []
    assert node.turns()[-1] == (node.now // S, JOB)
    began = node.now
    assert node.until_answer(orders.ENDS, began + 3 * QUANTUM) == (began + QUANTUM) // S
    assert node.revoked() == [1], "others end its lease"
    assert node.order(orders.STOP) == [orders.STOPPED]
    assert (node.holders(), node.revoked()) == ([JOB], [1, JOB])
    assert node.order(orders.REST) == []
    assert node.holders() == [1]


def test_what_is_free_is_lent_meanwhile_and_given_back_at_once() -> None:
    node = Orders("0")
    node.does(Closed(1))
    assert node.order(orders.LINE, S) == [orders.READY]
    node.does(Opened(2, ("d0",), "on", QUANTUM))
    node.does(Requested(2), 2 * S)
    node.until(2 * S + QUANTUM // 2)
    assert node.holders() == [2]
    assert node.order(orders.HOLD) == [orders.HELD]
    assert node.holders() == [JOB]
    assert node.order(orders.BACK) == []
    assert node.holders() == [2]
    assert node.order(orders.HOLD) == [orders.HELD], "it is ready still"


def test_it_goes_back_also_before_it_has_its_devices() -> None:
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(Opened(1, ("d0",), "on", QUANTUM), 0)
    a.handle(Requested(1), 0)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    a.handle(Ordered(JOB, orders.LINE), 0)
    assert Answer(JOB, orders.READY) in a.handle(Tick(), QUANTUM)
    (_, revoke) = a.handle(Ordered(JOB, orders.HOLD), QUANTUM)
    assert isinstance(revoke, Revoke)
    assert a.handle(Ordered(JOB, orders.BACK), QUANTUM) == []
    assert a.handle(Released(1, revoke.epoch), QUANTUM + S) == []
    (grant,) = a.handle(Requested(1), QUANTUM + S)
    assert isinstance(grant, Grant)


def test_who_gives_a_loan_back_keeps_its_place_and_the_rest_of_its_quantum() -> None:
    node = Orders("0", "0")
    node.order(orders.LINE, S)
    node.until(2 * QUANTUM)
    assert node.answers() == [orders.READY]
    for order in (orders.HOLD, orders.RUN, orders.STOP):
        node.order(order, 2 * QUANTUM + 10 * S)
    node.order(orders.REST)
    assert node.holders() == [1], "which had the devices for 10 s"
    node.until(node.now + QUANTUM - 11 * S)
    assert node.holders() == [1]
    node.until(node.now + 2 * S)
    assert node.holders() == [2]


def test_another_one_that_was_let_before_it_ends_for_it_too() -> None:
    """Where two wait for orders, the one that runs first has a quantum, and not more."""
    node = Orders()
    assert node.order(orders.LINE) == [orders.READY]
    node.does(Opened(8, ("d0",), "auto", QUANTUM, ordered=True))
    for order in (orders.LINE, orders.HOLD, orders.RUN):
        node.does(Ordered(8, order), S)
    began = len(node.events)
    node.until(2 * QUANTUM)
    found = [(at // S, one) for at, one in node.events[began:] if isinstance(one, Answer)]
    at = (S + QUANTUM) // S
    assert found == [(at, Answer(8, orders.ENDS)), (at, Answer(JOB, orders.READY))]
    node.does(Ordered(8, orders.STOP))
    node.does(Ordered(8, orders.REST))
    assert node.order(orders.HOLD) == [orders.HELD]


def test_its_turn_has_come_when_it_has_come_on_all_of_its_devices() -> None:
    """Whose quantum is over sooner goes on until the other one's is."""
    node = Orders("0", gang="01")
    node.until(30 * S)
    node.does(Opened(2, ("d1",), "on", QUANTUM))
    node.does(Requested(2))
    node.order(orders.LINE)
    assert node.until_answer(orders.READY, 3 * QUANTUM) == (30 * S + QUANTUM) // S
    assert (node.holders(), node.revoked()) == ([1, 2], [])
    assert node.order(orders.HOLD) == [orders.HELD]
    assert node.revoked() == [1, 2]


def test_it_stands_in_the_line_behind_who_came_before() -> None:
    node = Orders("0", "0")
    node.order(orders.LINE, S)
    assert node.until_answer(orders.READY, 5 * QUANTUM) == 2 * QUANTUM // S
    assert node.turns()[:3] == [(0, 1), (QUANTUM // S, 2), (2 * QUANTUM // S, 1)]


def test_who_holds_hears_that_it_waits_and_may_give_up_early() -> None:
    node = Orders("0")
    node.order(orders.LINE, S)
    assert [one for _, one in node.events if isinstance(one, Contend)]
    lease = node.a.tenants[1].lease
    assert lease
    node.does(Released(1, lease.epoch), 2 * S)
    assert node.answers() == [orders.READY]


def test_a_lease_that_it_gives_back_stays_its_own_until_it_rests() -> None:
    node = Orders("0")
    for order in (orders.LINE, orders.HOLD, orders.RUN):
        node.order(order, QUANTUM)
    lease = node.a.tenants[JOB].lease
    assert lease
    node.does(Released(JOB, lease.epoch), QUANTUM + S)
    assert node.answers()[-1] == orders.ENDS
    node.does(Requested(JOB))
    node.until(5 * QUANTUM)
    assert node.holders() == [JOB]
    assert node.turns()[-1] == (QUANTUM // S, JOB), "it takes another order to run again"
    assert node.order(orders.STOP)[-1] == orders.STOPPED
    node.order(orders.REST)
    assert node.holders() == [1]


def test_it_may_run_again_without_having_rested() -> None:
    node = Orders()
    for order in (orders.LINE, orders.HOLD, orders.RUN, orders.STOP):
        node.order(order, S)
    assert node.order(orders.HOLD, 2 * S) == [orders.HELD]
    node.order(orders.RUN, 3 * S)
    assert node.turns() == [(1, JOB), (3, JOB)]


@pytest.mark.parametrize("away", [Frozen(JOB), DrainSet("d0", True)])
def test_it_is_not_ready_while_it_could_not_run(away: Event) -> None:
    node = Orders()
    assert node.order(orders.LINE, S) == [orders.READY]
    node.does(away)
    assert node.answers()[-1] == orders.UNREADY
    node.does(Thawed(JOB) if isinstance(away, Frozen) else DrainSet("d0", False))
    assert node.answers()[-1] == orders.READY


@pytest.mark.parametrize("away", [Frozen(JOB), DrainSet("d0", True)])
def test_it_is_not_ready_any_more_if_it_cannot_run_before_it_has_its_devices(away: Event) -> None:
    """Nobody waits for it then: its devices are others' as soon as it is told to go back."""
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(Opened(1, ("d0",), "on", QUANTUM), 0)
    a.handle(Requested(1), 0)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    a.handle(Ordered(JOB, orders.LINE), 0)
    a.handle(Tick(), QUANTUM)
    (_, revoke) = a.handle(Ordered(JOB, orders.HOLD), QUANTUM)
    assert isinstance(revoke, Revoke)
    assert Answer(JOB, orders.UNREADY) in a.handle(away, QUANTUM)
    a.handle(Ordered(JOB, orders.BACK), QUANTUM)
    a.handle(Released(1, revoke.epoch), QUANTUM)
    back = Thawed(JOB) if isinstance(away, Frozen) else DrainSet("d0", False)
    assert Answer(JOB, orders.READY) in a.handle(back, QUANTUM)
    assert a.handle(Ordered(JOB, orders.HOLD), QUANTUM) == [Answer(JOB, orders.HELD)]


def test_a_job_that_is_stopped_while_it_runs_keeps_its_devices() -> None:
    node = Orders("0")
    for order in (orders.LINE, orders.HOLD, orders.RUN):
        node.order(order, QUANTUM)
    node.does(Frozen(JOB), QUANTUM + S)
    assert node.answers()[-1] == orders.ENDS
    assert node.holders() == [JOB]
    node.order(orders.STOP)
    node.order(orders.REST)
    assert node.holders() == [1]


def test_work_that_does_not_end_is_given_up_in_time_and_others_wait_for_the_order() -> None:
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    for order in (orders.LINE, orders.HOLD, orders.RUN):
        a.handle(Ordered(JOB, order), 0)
    a.handle(Opened(1, ("d0",), "on", QUANTUM), 0)
    a.handle(Requested(1), 0)
    a.handle(Ordered(JOB, orders.STOP), S)
    a.handle(Tick(), 11 * S)
    done = a.handle(Tick(), 21 * S)
    assert [type(one) for one in done] == [Answer, Forfeit]
    assert not any(isinstance(one, Grant) for one in done)
    (grant,) = [one for one in a.handle(Ordered(JOB, orders.REST), 22 * S) if type(one) is Grant]
    assert grant.tenant == 1


@pytest.mark.parametrize("comes_back", [False, True])
def test_after_a_restart_it_is_stopped_before_others_have_its_devices(comes_back: bool) -> None:
    a = Arbiter({"d0": 100}, policy.make, first_epoch=1000, grace_until=S)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    a.handle(Opened(1, ("d0",), "on", QUANTUM), 0)
    assert a.handle(Ordered(JOB, orders.STOP), 0) == []
    a.handle(Requested(1), 0)
    stopped = Answer(JOB, orders.STOPPED)
    if comes_back:
        (revoke,) = a.handle(Adopted(JOB, 5), S // 2)
        assert revoke == Revoke(JOB, 5, a.rules.drain_ns)
        assert a.handle(Rejoined(), S) == []
        assert a.handle(Released(JOB, 5), 2 * S) == [stopped]
    else:
        assert a.handle(Rejoined(), S // 2) == [stopped]
        assert a.tenants[JOB].lease is not None
    assert any(isinstance(x, Grant) for x in a.handle(Ordered(JOB, orders.REST), 3 * S))


def test_after_a_restart_it_keeps_nothing_beside_who_claims_it_by_right() -> None:
    a = Arbiter({"d0": 100}, policy.make, first_epoch=1000, grace_until=S)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    a.handle(Opened(1, ("d0",), "on", QUANTUM), 0)
    a.handle(Ordered(JOB, orders.STOP), 0)
    a.handle(Adopted(1, 6), 0)
    assert a.handle(Adopted(JOB, 5), 0) == [Revoke(JOB, 5, a.rules.drain_ns)]
    assert a.handle(Released(JOB, 5), 0) == [Answer(JOB, orders.STOPPED)]
    assert [tenant.id for tenant in a.rules.holders("d0")] == [1]


def test_a_process_that_holds_a_lease_which_nobody_ordered_gives_it_back() -> None:
    a = Arbiter({"d0": 100}, policy.make, first_epoch=1000, grace_until=S)
    a.handle(Opened(JOB, ("d0",), "auto", QUANTUM, ordered=True), 0)
    assert a.handle(Adopted(JOB, 5), 0) == [Revoke(JOB, 5, a.rules.drain_ns)]
    a.handle(Released(JOB, 5), 0)
    assert a.tenants[JOB].lease is None


def draw(r: random.Random, node: Orders) -> Event:
    """What may happen next, to whom it may happen."""
    others = [t.id for t in node.a.tenants.values() if t.id != JOB]
    job = node.a.tenants[JOB]
    possible: list[Event] = [Ordered(JOB, orders.STOP)]
    if job.ordered == orders.REST:
        possible = [Ordered(JOB, orders.LINE), Requested(JOB)]
    elif job.ordered == orders.READY:
        possible = [Ordered(JOB, orders.HOLD), Ordered(JOB, orders.REST)]
    elif job.ordered == orders.LINE:
        possible = [Ordered(JOB, orders.REST)]
    elif job.ordered == orders.HOLD:
        possible = [Ordered(JOB, orders.BACK)]
        possible += [Ordered(JOB, orders.RUN)] * 3 if job.lease else []
    elif job.ordered == orders.STOP and job.lease and job.lease.untold:
        possible = [Ordered(JOB, orders.REST)]
    for tenant in others:
        lease = node.a.tenants[tenant].lease
        possible.append(Released(tenant, lease.epoch) if lease else Requested(tenant))
    possible += [Frozen(r.choice([*others, JOB])), Thawed(JOB), *map(Thawed, others)]
    lock = r.choice([None, None, "on", "off"])
    possible += [LockSet("d0", lock), DrainSet(r.choice(["d0", "d1"]), r.random() < 0.2)]
    if job.lease and job.lease.untold is None:
        possible += [Released(JOB, job.lease.epoch), Restored(JOB, job.lease.epoch)]
    size, swaps = r.randint(0, 90), job.swaps
    there = r.randint(0, size) if swaps else None
    possible.append(MemoryChanged(r.choice([*others, JOB]), "d0", size, 0, there))
    return r.choice(possible)


@pytest.mark.parametrize("name", policy.names())
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("swaps", [False, True])
def test_whatever_happens_nobody_else_has_what_it_keeps(seed: int, name: str, swaps: bool) -> None:
    """And where all that wanted something has gone on, nothing is left of it."""
    r = random.Random(seed)
    node = Orders("0", "0", "1", "01", gang=r.choice(["0", "01"]), name=name, swaps=swaps)
    for _ in range(150):
        node.does(draw(r, node), node.now + r.choice([0, S // 100, S, QUANTUM]))
        node.until(node.now + r.choice([0, S // 10]))
        job, a = node.a.tenants[JOB], node.a
        if job.ordered in (orders.RUN, orders.STOP):
            assert job.lease is not None, "it keeps its devices"
        for device in job.devices if job.lease else ():
            beside = [t for t in device.holders.values() if t is not job]
            settled = [t.id for t in beside if t.lease and not t.lease.revoked]
            assert not settled or "off" in map(a.rules.lock_of, [job, *beside])
        assert job.place is None or job.ordered in (orders.LINE, orders.HOLD)
        told = job.lease is not None and job.lease.untold is None
        if told and job.lease is not None and not job.lease.revoked:
            assert job.ordered == orders.RUN
    node.does(Closed(JOB))
    for uuid in node.a.devices:
        node.does(DrainSet(uuid, False))
        node.does(LockSet(uuid, "on"))
    for tenant in list(node.a.tenants):
        node.does(Thawed(tenant))
        node.does(Requested(tenant))
    assert node.holders(), "the devices are others' again"
    assert not node.a.rules.lined
    assert JOB not in node.a.rules.untold

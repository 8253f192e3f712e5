"""What fair remembers of a tenant is there after a restart, and gone after another policy."""

from __future__ import annotations

import sys

import pytest

from leased import policy
from leased.core.actions import Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import Opened, PolicyRestored, PolicySet, Released, Requested, Tick
from leased.core.policy import PolicyState
from leased.policy.deficits import MOST_NS
from leased.record.lines import Header, Outcome, Start, entry_line, header_line
from leased.sim.replay import replay
from tests.core.line import queue

S = 1_000_000_000
OPENED = [Opened(tenant, ("d0",), "on", (60 if tenant == 0 else 1) * S) for tenant in range(3)]


def node(name: str = "fair") -> Arbiter:
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(PolicySet("d0", name), 0)
    for opened in OPENED:
        a.handle(opened, 0)
    return a


def one_turn_each(a: Arbiter) -> None:
    """The first of three has a minute of the device, then the second begins."""
    for tenant in range(3):
        a.handle(Requested(tenant), 0)
    (revoke,) = (x for x in a.handle(Tick(), 60 * S) if isinstance(x, Revoke))
    a.handle(Released(revoke.tenant, revoke.epoch), 60 * S)


def test_the_remembered_state_is_charged_up_to_now_and_asking_changes_nothing() -> None:
    a = node()
    for tenant in range(3):
        a.handle(Requested(tenant), 0)
    before = a.rules.policies.on("d0").dump()
    assert a.policy_state(0, 30 * S) == ("fair", '{"0": {"d0": -20000000000}}')
    assert a.policy_state(1, 30 * S) == ("fair", '{"1": {"d0": 10000000000}}')
    assert a.rules.policies.on("d0").dump() == before
    assert node("fcfs").policy_state(1, 30 * S) == ("fcfs", "")


def restored(a: Arbiter, before: Arbiter, now: int) -> list[PolicyRestored]:
    events = [PolicyRestored(n, *before.policy_state(n, now)) for n in before.tenants]
    for event in events:
        a.handle(event, now)
    return events


def test_after_a_restart_who_has_had_too_much_still_comes_last() -> None:
    before, after, forgets = node(), node(), node()
    one_turn_each(before)
    restored(after, before, 60 * S)
    for a in (after, forgets):
        for tenant in (1, 0, 2):
            a.handle(Requested(tenant), 61 * S)
    assert queue(forgets) == [0, 2], "as they came"
    assert queue(after) == [2, 0]


def test_a_record_of_it_replays_to_the_same_state() -> None:
    before = node()
    one_turn_each(before)
    a = Arbiter({"d0": 100}, policy.make)
    lines = [header_line(Header("any", 0.0, Start.of(a)))]
    events = [PolicySet("d0", "fair"), *OPENED]
    events += [PolicyRestored(n, *before.policy_state(n, 60 * S)) for n in before.tenants]
    events += [Requested(n) for n in (2, 0, 1)]
    for event in events:
        outcome = Outcome(tuple(a.handle(event, 60 * S)))
        lines.append(entry_line(60 * S, event, outcome))
    steps = list(replay(lines, []))
    assert [step.difference() for step in steps] == [None] * len(events)
    again = steps[-1].arbiter
    assert again.rules.policies.on("d0").dump() == a.rules.policies.on("d0").dump() != b""
    assert queue(again) == queue(a)


def test_another_policy_and_back_begins_anew() -> None:
    a = node()
    one_turn_each(a)
    assert a.policy_state(0, 60 * S).state
    a.handle(PolicySet("d0", "fcfs"), 61 * S)
    assert a.policy_state(0, 61 * S) == ("fcfs", "")
    a.handle(PolicySet("d0", "fair"), 62 * S)
    assert a.policy_state(0, 62 * S) == ("fair", "")


def test_the_state_of_another_policy_is_ignored() -> None:
    a = node("fcfs")
    old = PolicyState("fair", '{"0": {"d0": 5}}')
    assert a.understands(OPENED[0], old)
    a.handle(PolicyRestored(0, *old), 1)
    assert a.policy_state(0, 1) == ("fcfs", "")
    a.handle(PolicyRestored(0, "of-a-later-release", "x"), 1)


LONG_NUMBERS = pytest.mark.skipif(
    not hasattr(sys, "get_int_max_str_digits"), reason="this Python reads numbers of any length"
)


@pytest.mark.parametrize(
    "damaged",
    [
        "{", "[1]", "7", "[" * 50_000, '{"0": 2}', '{"x": {}}', '{"0": {"d0": "x"}}',
        '{"0": {"d0": true}}', '{"0": {"d0": 1e999}}', '{"' + "9" * 5000 + '": {}}',
        "\ud800",
        pytest.param('{"0": {"d0": ' + "9" * 5000 + "}}", marks=LONG_NUMBERS),
    ],
)  # fmt: skip
def test_damaged_memory_is_seen_and_does_no_harm(damaged: str) -> None:
    a = node()
    assert not a.understands(OPENED[0], PolicyState("fair", damaged))
    a.handle(PolicyRestored(0, "fair", damaged), 1)
    assert a.policy_state(0, 1).state in ("", '{"0": {}}')


def test_a_deficit_has_its_limit_whoever_wrote_it() -> None:
    a = node()
    a.handle(PolicyRestored(0, "fair", '{"0": {"d0": 99999999999999999999}}'), 1)
    assert a.policy_state(0, 1).state == f'{{"0": {{"d0": {MOST_NS}}}}}'

"""The state machine of a GPU's health, against any sequence of signs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.classes import health, xid
from leased.classes.health import Health, Signs, State

LOOK_NS = 500_000_000
BAD, FAR, WELL = Signs(slowdown=2.5), Signs(slowdown=5.0), Signs(slowdown=0.5, clock=0.9)
FAULT = Signs(fault="it has fallen off the bus")


class Watched:
    """A health that is looked at twice a second; what it was, and when offline jobs had to go."""

    def __init__(self) -> None:
        self.health = Health()
        self.now = 0
        self.states: list[State] = []
        self.evicted: list[int] = []

    def see(self, signs: Signs, seconds: float) -> State:
        for _ in range(round(seconds * 1e9 / LOOK_NS)):
            self.now += LOOK_NS
            if self.health.look(self.now, signs):
                self.evicted.append(self.now)
            self.states.append(self.health.state)
        return self.health.state


def healthy() -> Watched:
    made = Watched()
    assert made.see(WELL, 5) is State.INIT
    assert made.health.takes_offline, "nothing is known against it yet"
    assert made.see(WELL, 10) is State.HEALTHY
    return made


@pytest.mark.parametrize(
    "signs",
    [BAD, FAR, Signs(clock=0.5), Signs(memory=0.99), Signs(online_busy=0.97)],
)
def test_what_is_bad_for_a_while_keeps_new_offline_jobs_away(signs: Signs) -> None:
    device = healthy()
    device.see(signs, 2)
    assert device.health.takes_offline, "it may be chance"
    device.see(WELL, 1)
    assert device.see(signs, 5) is State.UNHEALTHY
    assert not device.health.takes_offline
    assert device.health.why
    assert device.see(WELL, 29) is State.UNHEALTHY
    assert device.see(WELL, 3) is State.HEALTHY
    assert not device.health.why
    assert not device.evicted


def test_offline_jobs_are_evicted_once_and_the_pause_doubles() -> None:
    device = healthy()
    pauses: list[int] = []
    for _ in range(4):
        device.see(FAR, 80)
        assert device.health.state is State.OVERLIMIT
        began = device.health.since
        while device.health.state is State.OVERLIMIT:
            device.see(WELL, 0.5)
        pauses.append((device.health.since - began) // 10**9)
        device.see(WELL, 60)
    assert pauses == [60, 120, 240, 480]
    assert len(device.evicted) == 4
    device.see(WELL, health.WITHIN_S)
    device.see(FAR, 80)
    assert device.health.stays_s == health.FIRST_S, "two hours later it is the first again"


def test_a_device_that_is_lost_and_comes_back_is_looked_at_first() -> None:
    device = healthy()
    assert device.see(FAULT, 0.5) is State.DISABLED
    assert "off the bus" in device.health.why
    assert not device.health.takes_offline
    assert device.see(WELL, 5) is State.INIT
    assert device.see(WELL, 10) is State.HEALTHY
    assert not device.evicted, "who uses it runs on, or ends by itself"


@pytest.mark.parametrize("number", sorted(xid.BROKEN))
def test_a_gpu_that_has_to_be_reset_is_disabled_until_the_daemon_begins_anew(number: int) -> None:
    device = healthy()
    device.health.look(device.now, Signs(xids=(13, number)))
    assert device.see(WELL, 3600) is State.DISABLED
    assert f"Xid {number}" in device.health.why
    assert not device.evicted


def test_programs_own_faults_are_not_the_gpus() -> None:
    device = healthy()
    for number in sorted(xid.OWN) * 5:
        device.health.look(device.now, Signs(xids=(number,)))
        assert device.see(WELL, 5) is State.HEALTHY


@pytest.mark.parametrize(("errors", "evicted"), [(1, False), (2, False), (3, True), (9, True)])
def test_other_errors_keep_offline_jobs_away_for_ten_minutes(errors: int, evicted: bool) -> None:
    device = healthy()
    device.health.look(device.now, Signs(xids=(63,) * errors))
    assert device.see(WELL, 5) is State.UNHEALTHY
    assert device.health.why == "the driver has told of errors of it"
    assert device.see(WELL, 120) is not State.HEALTHY
    assert bool(device.evicted) == evicted
    device.see(WELL, health.ERRORS_S)
    assert device.see(WELL, health.MOST_S) is State.HEALTHY


SIGNS = st.sampled_from([BAD, FAR, WELL, FAULT, Signs(), Signs(clock=0.1), Signs(memory=1.0)])
NEXT = {
    State.INIT: {State.HEALTHY},
    State.HEALTHY: {State.UNHEALTHY},
    State.UNHEALTHY: {State.HEALTHY, State.OVERLIMIT},
    State.OVERLIMIT: {State.UNHEALTHY},
    State.DISABLED: {State.INIT},
}


@given(st.lists(st.tuples(SIGNS, st.integers(1, 120)), max_size=30))
def test_it_goes_only_ways_that_there_are(seen: list[tuple[Signs, int]]) -> None:
    device = Watched()
    for signs, seconds in seen:
        before = device.health.state
        device.see(signs, seconds)
        assert (device.health.state is State.DISABLED) == (signs.fault is not None) or (
            before is State.DISABLED
        )
    for before, after in zip(device.states, device.states[1:]):
        assert after in {before, State.DISABLED} | NEXT[before]
    entries = sum(
        after is State.OVERLIMIT and before is not State.OVERLIMIT
        for before, after in zip(device.states, device.states[1:])
    )
    assert len(device.evicted) == entries
    gaps = [b - a for a, b in zip(device.evicted, device.evicted[1:])]
    assert all(gap >= health.FIRST_S * 1e9 for gap in gaps)


def test_what_is_not_known_is_not_bad() -> None:
    assert healthy().see(Signs(), 1000) is State.HEALTHY

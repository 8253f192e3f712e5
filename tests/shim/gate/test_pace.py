"""How much work is let in while somebody waits: shim/gate/pace_flight.c, in simulated time over
a device that executes calls one after the other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

FILTER = ROOT / "build" / "meson" / "tests" / "shim" / "gate" / "pace_filter"
US, MS, S = 10**3, 10**6, 10**9
CALL_NS = 1 * US  # that a thread needs to submit one


class Seen(NamedTuple):
    most: int  # calls in flight
    idle: float  # part of the time in which the device had nothing to do
    draws: int
    calls: int


class Device:
    """A thread that submits without a pause, as far as it is let."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process

    def say(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def ask(self, *words: object) -> list[int]:
        self.say(*words)
        assert self.process.stdout is not None
        return [int(word) for word in self.process.stdout.readline().split()]

    def submit(self, ns: int) -> Seen:
        """For so long."""
        passed = most = idle = draws = calls = 0
        while passed < ns:
            drawn, pause, in_flight = self.ask("draw")
            step = drawn * CALL_NS or pause
            (idled,) = self.ask("pass", step)
            passed, idle, most = passed + step, idle + idled, max(most, in_flight)
            draws, calls = draws + bool(drawn), calls + drawn
        return Seen(most, idle / passed, draws, calls)


@pytest.fixture
def device() -> Iterator[Device]:
    with subprocess.Popen(
        [str(FILTER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Device(process)
        process.communicate()


@pytest.mark.parametrize("takes", [50 * US, 1 * MS, 10 * MS])
def test_about_so_much_work_is_in_flight_and_the_device_is_never_idle(
    device: Device, takes: int
) -> None:
    device.say("takes", takes)
    device.say("begin", 100 * MS)
    device.submit(1 * S)
    seen = device.submit(3 * S)
    assert 50 * MS <= seen.most * takes <= 200 * MS
    assert seen.idle == 0


def test_two_long_calls_are_let_in(device: Device) -> None:
    device.say("takes", 1 * S)
    device.say("begin", 100 * MS)
    device.submit(20 * S)
    seen = device.submit(10 * S)
    assert seen.most == 2
    assert seen.idle < 0.01


def test_the_first_guess_is_small(device: Device) -> None:
    device.say("takes", 1 * S)
    device.say("begin", 100 * MS)
    assert device.submit(500 * MS).most <= 16


def test_a_draw_is_for_many_short_calls(device: Device) -> None:
    device.say("takes", 2 * US)
    device.say("begin", 100 * MS)
    device.submit(300 * MS)
    seen = device.submit(300 * MS)
    assert seen.calls / seen.draws > 100


def test_calls_that_become_longer_are_seen(device: Device) -> None:
    device.say("takes", 100 * US)
    device.say("begin", 100 * MS)
    device.submit(1 * S)
    device.say("takes", 10 * MS)
    device.submit(20 * S)
    assert device.submit(3 * S).most * 10 * MS <= 200 * MS


def test_no_event_is_recorded_in_a_context_whose_stream_captures(device: Device) -> None:
    device.say("takes", 1 * S)
    device.say("begin", 100 * MS)
    device.say("captures", 1)
    for n in range(100):
        assert device.ask("draw") == [1, 0, n + 1]


def test_when_nobody_waits_any_more_all_calls_pass(device: Device) -> None:
    device.say("takes", 1 * S)
    device.say("begin", 100 * MS)
    device.submit(500 * MS)
    assert device.ask("draw")[0] == 0
    device.say("end")
    for _ in range(100):
        assert device.ask("draw")[0] == 1


def test_work_submitted_before_another_job_waits_is_not_counted(device: Device) -> None:
    """It is not known, and the rate of the last time stays."""
    device.say("takes", 1 * MS)
    device.say("begin", 100 * MS)
    device.submit(1 * S)
    device.say("end")
    for _ in range(1000):
        device.ask("draw")
    device.say("begin", 100 * MS)
    drawn, _, _ = device.ask("draw")
    assert 1 < drawn <= 100

"""How a device is used, as status says it: shared or by turns, whatever the jobs have chosen."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.events import Channels, Closed, DrainSet, LockSet, MemoryChanged, Opened, Requested
from leased.leasing import sharing_mode
from leased.leasing.arbiter_view import DeviceView

S = 1_000_000_000


def node(*locks: str, waits: int = 0) -> Arbiter:
    """One device of 100 bytes; job 1, 2, ... with these locks, all of which want it."""
    a = Arbiter({"d0": 100}, policy.make)
    for job, lock in enumerate(locks, 1):
        a.handle(Opened(job, ("d0",), lock, 30 * S, job=f"5_{job}"), 0)
    for job in range(1, len(locks) + 1 - waits):
        a.handle(Requested(job), 0)
    return a


def shown(a: Arbiter) -> tuple[str, str]:
    mode = sharing_mode.of(DeviceView(a, a.devices["d0"]))
    return mode.word, mode.why


def test_turns_that_jobs_ask_for_are_no_sharing() -> None:
    assert shown(node("on", "on")) == ("exclusive", "lock:on counts for jobs 5_1, 5_2")
    assert shown(node("on")) == ("exclusive", "lock:on counts for job 5_1")
    assert shown(node("auto", "on", "auto")) == ("exclusive", "lock:on counts for job 5_2")


def test_memory_that_does_not_fit_together_is_said_in_words_for_people() -> None:
    a = node("auto", "auto")
    a.devices["d0"].residency.set_room(100 << 30)
    for job in (1, 2):
        a.handle(MemoryChanged(job, "d0", 60 << 30), 0)
    words = "the jobs' memory does not fit together: they have 120 GiB, and the device has room "
    assert shown(a) == ("exclusive", words + "for 100 GiB")


def test_an_idle_job_does_not_change_the_mode() -> None:
    fits = ("shared", "the jobs' memory fits together")
    assert shown(node("auto", "auto", "on", waits=1)) == fits
    assert shown(node("auto", "off")) == fits
    assert shown(node()) == fits
    a = node("on", "auto")
    a.handle(Closed(1), S)
    assert shown(a) == fits


def test_jobs_with_lock_off_take_no_turns() -> None:
    a = node("off", "off")
    for job in (1, 2):
        a.handle(MemoryChanged(job, "d0", 80), 0)
    assert set(a.devices["d0"].holders) == {1, 2}
    assert shown(a) == ("shared", "lock:off counts for all jobs here")
    a.handle(Opened(3, ("d0",), "auto", 30 * S), 0)
    a.handle(Requested(3), 0)
    word, why = shown(a)
    assert word == "exclusive"
    assert why.startswith("the jobs' memory does not fit together")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (LockSet("d0", "off"), ("shared", "set by the site: lock off")),
        (LockSet("d0", "on"), ("exclusive", "set by the site: lock on")),
        (
            DrainSet("d0", True),
            ("draining", "set by the site: no new lease until it is resumed"),
        ),
    ],
)
def test_the_choice_of_the_site_goes_first(
    event: LockSet | DrainSet, expected: tuple[str, str]
) -> None:
    a = node("on", "auto")
    a.handle(event, S)
    assert shown(a) == expected


def test_shares_are_kept_by_turns_while_slices_cannot_keep_them() -> None:
    a = node("auto", "off")
    a.handle(Opened(3, ("d0",), "auto", 30 * S, request=0.5, job="7+3"), 0)
    a.handle(Requested(3), 0)
    a.handle(Channels(1, True), S)
    why = "since the GPU cannot divide its time for jobs 5_2, 7+3"
    kept = f"job 7+3 has a share of its time, which is kept by turns, {why}"
    assert shown(a) == ("exclusive", kept)
    a.handle(Channels(2, True), S)
    a.handle(Channels(3, True), S)
    assert shown(a) == ("shared", "job 7+3 has a share of its time, which is kept side by side")

"""What a picture of a record shows: who waited and held, handoffs as wide as they took, memory."""

from __future__ import annotations

import pytest

from leased.base.errors import Refused
from leased.core.events import Closed, MemoryChanged, Opened, Requested, Restored, RoomChanged, Tick
from leased.sim import spans
from leased.sim.jobs import GIB, S
from leased.sim.spans import HANDOFF, Picture, Span
from tests.sim.scripted import GPU, Script


def opened(job: int, swaps: bool = False, lock: str = "on") -> Opened:
    return Opened(job, (GPU,), lock, 10 * S, swaps)


def two_jobs() -> Script:
    """Two of 10 GiB on 16: the first until 12 s (revoked at 11), the second from 15 s on."""
    script = Script()
    script.at(1, opened(1, swaps=True), opened(2, swaps=True))
    script.at(1, *(MemoryChanged(job, GPU, 10 * GIB, 0, 0) for job in (1, 2)))
    script.at(1, Requested(1), Requested(2))
    script.at(1, Restored(1, script.epochs[1]))
    script.at(11, Tick())
    script.release(12, 1)
    script.at(15, Restored(2, script.epochs[2]))
    script.at(20, Closed(1), Closed(2))
    return script


def shown(picture: Picture) -> dict[int, list[tuple[str, float, float]]]:
    """By job, in seconds."""
    (device,) = picture.devices
    return {
        lane.job: [(span.kind, span.since / S, span.until / S) for span in lane.spans]
        for lane in device.lanes
    }


def test_spans_of_two_jobs_that_take_turns() -> None:
    found = spans.picture(two_jobs().history())
    assert (found.began, found.length) == (1_000_001.0, 19 * S)
    assert shown(found) == {
        1: [("holds", 0, 10), ("leaves", 10, 11)],
        2: [("waits", 0, 11), ("comes", 11, 14), ("holds", 14, 19)],
    }


def test_a_handoff_is_as_wide_as_it_took() -> None:
    (device,) = spans.picture(two_jobs().history()).devices
    assert device.handoffs == (Span(HANDOFF, 10 * S, 14 * S),)
    assert device.handoff_ns == 4 * S


def test_a_pause_between_two_jobs_is_no_handoff() -> None:
    script = Script()
    script.at(0, opened(1), opened(2), Requested(1))
    script.at(4, Closed(1))
    script.at(9, Requested(2))
    script.at(10, Closed(2))
    assert spans.picture(script.history()).devices[0].handoffs == ()


def test_memory_stands_against_what_there_is_room_for() -> None:
    script = Script()
    script.at(0, opened(1), MemoryChanged(1, GPU, 4 * GIB))
    script.at(5, MemoryChanged(1, GPU, 9 * GIB), RoomChanged(GPU, 8 * GIB))
    script.at(6, Closed(1), Tick())
    (device,) = spans.picture(script.history()).devices
    assert device.lanes[0].memory == ((0, 4 * GIB), (5 * S, 9 * GIB))
    assert device.capacity == ((0, 16 * GIB), (5 * S, 8 * GIB))


def test_side_by_side_there_is_no_handoff() -> None:
    script = Script()
    script.at(0, opened(1, lock="off"), opened(2, lock="off"), Requested(1))
    script.at(1, Requested(2))
    script.at(5, Closed(1), Closed(2))
    found = spans.picture(script.history())
    assert found.devices[0].handoffs == ()
    assert shown(found)[2] == [("holds", 1, 5)]


def test_jobs_and_a_time_are_chosen() -> None:
    history = two_jobs().history()
    assert list(shown(spans.picture(history, jobs=[2]))) == [2]
    late = spans.picture(history, since=1_000_012.5)
    assert (late.began, late.length) == (1_000_012.5, round(7.5 * S))
    assert shown(late)[2] == [("comes", 0, 2.5), ("holds", 2.5, 7.5)]
    assert late.devices[0].lanes[1].memory[0] == (0, 10 * GIB)


@pytest.mark.parametrize(
    ("jobs", "since", "said"),
    [
        ([3], None, "job 3 is not in the record; it has jobs 1, 2"),
        ([], 2_000_000.0, "no job of the record was there at that time"),
    ],
)
def test_unknown_jobs_and_times_are_refused(
    jobs: list[int], since: float | None, said: str
) -> None:
    with pytest.raises(Refused) as refused:
        spans.picture(two_jobs().history(), jobs, since)
    assert said in refused.value.sentence()


def test_a_job_that_goes_away_and_comes_back_has_one_lane() -> None:
    """It moved to another GPU and back, or was requeued: each time is a run of its own."""
    script = Script()
    for at in (0, 10):
        script.at(at, opened(1), MemoryChanged(1, GPU, 4 * GIB, 0, 0), Requested(1))
        script.at(at + 4, Closed(1))
    picture = spans.picture(script.history())
    (lane,) = picture.devices[0].lanes
    assert shown(picture) == {1: [("holds", 0, 4), ("holds", 10, 14)]}
    assert lane.memory == ((0, 4 * GIB), (4 * S, 0), (10 * S, 0), (10 * S, 4 * GIB))

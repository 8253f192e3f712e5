"""Which job moves to an idle GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from leased.moving.choice import REST_NS, WORTH, Choice, DeviceSeen, choose, cost_ns
from leased.moving.idle_gpus import AGAIN_NS, IdleGpus

GB = 1_000_000_000
LONG_NS = 3600 * GB  # an hour
ROOM = 141 * GB


def device(
    uuid: str,
    jobs: Mapping[int, int],
    turns_ns: int = 0,
    kind: str = "H200",
    *,
    resident: Mapping[int, int] | None = None,
    busy: float = 0.0,
    still: Collection[int] = (),
) -> DeviceSeen:
    """Its jobs take turns if they have for some time."""
    turns = frozenset(jobs) if turns_ns else frozenset[int]()
    there = jobs if resident is None else resident
    return DeviceSeen(uuid, kind, ROOM, jobs, there, turns, turns_ns, 50e9, busy, frozenset(still))


FULL = device("a", {1: 90 * GB, 2: 95 * GB}, LONG_NS)


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([device("b", {})], Choice(1, "b")),
        ([device("b", {7: 40 * GB}), device("c", {8: 10 * GB})], Choice(1, "c")),
        ([device("b", {7: 40 * GB}), device("c", {8: 10 * GB}, busy=0.5)], Choice(1, "b")),
        ([device("b", {7: 40 * GB}, busy=1.0)], None),
        ([device("b", {7: 60 * GB})], None),
        ([device("b", {}, kind="H100")], None),
        ([device("b", {7: 70 * GB, 8: 72 * GB}, LONG_NS)], None),
        ([], None),
    ],
    ids=[
        "idle",
        "roomiest",
        "idlest",
        "busy",
        "no room",
        "other kind",
        "takes turns itself",
        "alone",
    ],
)
def test_the_smallest_goes_where_most_room_is(
    others: list[DeviceSeen], chosen: Choice | None
) -> None:
    assert choose([FULL, *others], {}) == chosen


def test_only_what_has_gone_on_for_some_times_a_move_is_worth_one() -> None:
    jobs, idle = {1: 90 * GB, 2: 95 * GB}, device("b", {})
    worth = WORTH * cost_ns(1, FULL)
    assert choose([device("a", jobs, worth), idle], {}) == Choice(1, "b")
    assert choose([device("a", jobs, worth - 1), idle], {}) is None


def test_a_gpu_that_is_busy_half_of_the_time_is_worth_half_as_much() -> None:
    jobs, half = {1: 90 * GB, 2: 95 * GB}, device("b", {7: 10 * GB}, busy=0.5)
    worth = WORTH * cost_ns(1, FULL)
    assert choose([device("a", jobs, 2 * worth), half], {}) == Choice(1, "b")
    assert choose([device("a", jobs, 2 * worth - 1), half], {}) is None


def test_rather_the_one_moves_without_which_the_others_fit() -> None:
    """Also if that takes longer; where it cannot move, another one does."""
    jobs = {1: 90 * GB, 2: 95 * GB, 3: 5 * GB}
    full, small = device("a", jobs, LONG_NS), WORTH * cost_ns(3, device("a", jobs))
    assert choose([full, device("b", {})], {}) == Choice(1, "b")
    assert choose([device("a", jobs, small), device("b", {})], {}) is None
    assert choose([full, device("b", {7: 100 * GB})], {}) == Choice(3, "b")


def test_where_one_is_hindered_another_one_moves_or_to_another_gpu() -> None:
    idle = [FULL, device("b", {}), device("c", {7: 1 * GB})]
    assert choose(idle, {}, lambda choice: choice != Choice(1, "b")) == Choice(1, "c")
    assert choose(idle, {}, lambda choice: choice.job != 1) == Choice(2, "b")
    assert choose(idle, {}, lambda _: False) is None


def test_a_job_that_has_moved_rests_and_another_one_moves() -> None:
    idle = device("b", {})
    assert choose([FULL, idle], {1: REST_NS - 1}) == Choice(2, "b")
    assert choose([FULL, idle], {1: REST_NS - 1, 2: 0}) is None
    assert choose([FULL, idle], {1: REST_NS}) == Choice(1, "b")


def test_of_jobs_as_large_the_one_moves_whose_memory_is_away() -> None:
    jobs = {1: 90 * GB, 2: 90 * GB}
    waits = device("a", jobs, LONG_NS, resident={1: 90 * GB, 2: 51 * GB})
    assert choose([waits, device("b", {})], {}) == Choice(2, "b")


def test_a_job_that_stands_still_in_mid_kernel_moves_only_if_that_takes_less_all_the_same() -> None:
    """It has to have all of its memory there once more."""
    for size, chosen in ((90 * GB, 1), (55 * GB, 2)):
        jobs, resident = {1: 90 * GB, 2: size}, {1: 90 * GB, 2: ROOM - 90 * GB}
        waits = device("a", jobs, LONG_NS, resident=resident, still={2})
        assert choose([waits, device("b", {})], {}) == Choice(chosen, "b")


def test_no_job_goes_to_and_fro() -> None:
    """Whatever comes and goes beside it, each job moves once in the time of a rest."""
    places = {1: "a", 2: "a", 3: "b"}
    sizes = {1: 90 * GB, 2: 95 * GB, 3: 100 * GB}
    rested: dict[int, int] = {}
    moved: list[int] = []
    for _ in range(20):
        seen = []
        for uuid in ("a", "b", "c"):
            jobs = {job: sizes[job] for job, at in places.items() if at == uuid}
            seen.append(device(uuid, jobs, LONG_NS if sum(jobs.values()) > ROOM else 0))
        if (chosen := choose(seen, rested)) is None:
            break
        moved.append(chosen.job)
        places[chosen.job], rested[chosen.job] = chosen.to, 0
    assert moved == [1]
    assert places == {1: "c", 2: "a", 3: "b"}


def test_a_job_that_has_not_stood_still_for_its_move_is_tried_again_soon() -> None:
    gpus, seen, jobs = IdleGpus(), [FULL, device("b", {})], {1, 2}

    def chosen(at: int) -> Choice | None:
        return gpus.choose(at, seen, lambda choice: choice.job == 1)

    gpus.begins(LONG_NS, 1)
    assert chosen(LONG_NS + AGAIN_NS - 1) is None
    assert chosen(LONG_NS + AGAIN_NS) == Choice(1, "b")
    gpus.note({1: LONG_NS + 1}, jobs)
    assert chosen(LONG_NS + REST_NS) is None
    assert chosen(LONG_NS + REST_NS + 1) == Choice(1, "b")

"""A job that has waited for long gets a GPU, though others keep coming."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placer.scenes import HOLD, SETTINGS, T0, Slurm, job, node, reason, running

PATIENCE = 60
KEPT = "it is kept for a job that has waited for longer"
RESERVES = replace(SETTINGS, reserve_s=PATIENCE)


def slurm(nodes: int = 1, **fields: int) -> Slurm:
    return Slurm([node(f"n{n + 1}", **fields) for n in range(nodes)], settings=RESERVES)


def comes(there: Slurm, number: int, options: str, **fields: Any) -> None:
    """One more job comes, and the placer and Slurm have their turns."""
    there.submit(number, options, **fields)
    there.go(2)


def waited(nodes: int = 1, ends_s: int = 0) -> Slurm:
    """Job 1 has waited for a GPU until one is kept for it: job 9 is there, until when if that is
    known."""
    there = slurm(nodes)
    there.add(running(job(9), "n1", end=T0 + ends_s if ends_s else 0))
    there.submit(1, "exclusion:a")
    there.go(PATIENCE + 10)
    return there


def crowd(there: Slurm, seconds: int) -> None:
    """Every 40 s one more job comes that takes 100 s, before the others in Slurm's order."""
    for second in range(seconds):
        if second % 40 == 0:
            number = 1000 + (there.now - T0) // 40
            there.submit(number, "request:0.1", limit_s=100, priority=10**7 + number)
        there.go(1)


@pytest.mark.parametrize("options", ["exclusion:a", "request:0.95", "anti-affinity:x,request:0.91"])
def test_a_job_that_others_would_keep_waiting_for_ever_starts(options: str) -> None:
    there = slurm()
    crowd(there, 100)
    there.submit(1, options)
    crowd(there, PATIENCE + 100 + SETTINGS.settle_s + 10)
    assert there.where("1") == ("n1", 0)
    without = replace(slurm(), settings=SETTINGS)
    crowd(without, 100)
    without.submit(1, options)
    crowd(without, 2000)
    assert without.where("1") is None, "or else the test shows nothing"


def test_it_says_so_in_the_comments_of_both() -> None:
    there = slurm(2)
    there.add(running(job(8), "n1", end=T0 + 1000), running(job(9), "n2", end=T0 + 500))
    there.submit(1, "exclusion:a")
    there.go(PATIENCE + 40)
    assert "waits: n2 is kept for it; no GPU can take the job" in reason(there.jobs["1"])
    there.submit(2, "request:0.2", required="n2")
    comes(there, 3, "request:0.2")
    assert f"n2 GPU 0: {KEPT}" in reason(there.jobs["2"])
    assert there.where("3") == ("n1", 0), "there it is in nobody's way"


def test_a_job_that_ends_in_time_goes_there_and_a_longer_one_does_not() -> None:
    there = waited(ends_s=600)
    left = T0 + 600 - there.now
    there.submit(2, "request:0.2", limit_s=left - SETTINGS.settle_s + 1)
    there.submit(3, "request:0.2", limit_s=left - SETTINGS.settle_s - 5)
    comes(there, 4, "request:0.2")
    assert there.where("3") == ("n1", 0)
    assert (there.where("2"), there.where("4")) == (None, None)
    there.go(T0 + 602 - there.now)
    assert there.where("1") == ("n1", 0)


def test_a_job_that_is_not_in_its_way_goes_there() -> None:
    there = slurm()
    there.add(running(job(9, "request:0.5"), "n1", end=T0 + 600))
    there.submit(1, "request:0.6")
    there.go(PATIENCE + 10)
    there.submit(2, "request:0.4")
    comes(there, 3, "request:0.1")
    assert there.where("2") == ("n1", 0), "0.6 is left for the other when job 9 has ended"
    assert KEPT in reason(there.jobs["3"]), "now it would not be"


def test_the_other_gpus_of_its_node_take_jobs() -> None:
    typed = replace(node("n1"), gpus=(("g0", 4), ("g1", 4)))
    there = Slurm([typed], settings=RESERVES)
    there.add(running(job(8), "n1", 0), running(job(9), "n1", 1))
    there.submit(1, "exclusion:a", gpu_type="g0")
    there.go(PATIENCE + 10)
    there.submit(2, "request:0.2", gpu_type="g1")
    there.submit(3, "request:0.2", gpu_type="g0")
    turns = there.turn()
    assert [ticket.gpu for _, _, ticket in turns.starts if ticket] == [1]


def test_cpus_are_kept_too() -> None:
    there = Slurm([node("n1", idle_cpus=2)], settings=RESERVES)
    there.add(replace(running(job(9), "n1", end=T0 + 600), cpus=6, given={}, shards=0))
    there.submit(1, "affinity:a", cpus=8)
    there.go(PATIENCE + 10)
    comes(there, 2, "request:0.2", cpus=2)
    assert KEPT in reason(there.jobs["2"])


def test_its_affinity_label_is_not_taken_elsewhere() -> None:
    """With its label there, the job would have to follow to a GPU that has no room for it."""
    there = slurm(2)
    there.add(running(job(8), "n1", end=T0 + 500), running(job(9), "n2"))
    there.submit(1, "affinity:a", shards=4)
    there.go(PATIENCE + 10)
    there.nodes.append(node("n3", shards=1))
    there.submit(2, "affinity:a")
    comes(there, 3, "affinity:b")
    assert (there.where("2"), there.where("3")) == (None, ("n3", 0))


def test_the_one_that_has_waited_longest_is_first() -> None:
    there = slurm()
    there.add(running(job(9), "n1", end=T0 + 400))
    there.submit(2, "exclusion:b")
    there.go(20)
    there.submit(1, "exclusion:a", priority=10**8)
    there.go(380)
    there.go(3)
    assert (there.where("2"), there.where("1")) == (("n1", 0), None)


def test_of_jobs_that_end_nobody_knows_when_the_fewest_are_waited_for() -> None:
    there = slurm(2)
    there.add(running(job(7), "n1"), running(job(8), "n1"), running(job(9), "n2"))
    there.submit(1, "exclusion:a")
    there.go(PATIENCE + 40)
    assert "n2 is kept for it" in reason(there.jobs["1"])
    comes(there, 2, "request:0.1", required="n2")
    assert KEPT in reason(there.jobs["2"])
    there.end("9")
    there.go(2)
    assert there.where("1") == ("n2", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0, "reason": "JobHeldUser"},
        {"reason": "Dependency"},
        {"shards": 5},
        {"partitions": ("cpu",)},
    ],
    ids=str,
)
def test_a_job_for_which_a_place_is_not_what_is_missing_keeps_none(
    fields: dict[str, object],
) -> None:
    there = slurm()
    there.add(running(job(9), "n1"))
    there.submit(1, "exclusion:a", **fields)
    there.go(2 * PATIENCE)
    comes(there, 2, "request:0.2")
    assert there.where("2") == ("n1", 0)


def test_a_job_whose_node_is_down_keeps_no_other_job_waiting() -> None:
    there = slurm(2)
    there.nodes[1] = replace(there.nodes[1], usable=False)
    there.add(running(job(9), "n1", end=T0 + 500))
    there.submit(1, "exclusion:a", required="n2")
    there.go(10)
    there.submit(2, "exclusion:b")
    there.go(PATIENCE + 20)
    comes(there, 3, "request:0.2")
    assert KEPT in reason(there.jobs["3"]), "for job 2, since nothing can be kept for job 1"


def test_where_slurm_does_not_start_the_job_the_others_go_on() -> None:
    there = slurm()
    there.starts = lambda one: one.job_id != 1
    there.add(running(job(9), "n1", end=T0 + 100))
    there.submit(1, "exclusion:a")
    there.go(90)
    there.submit(2, "request:0.2")
    there.go(30)
    assert KEPT in reason(there.jobs["2"]) or "exclusion:a may be there" in reason(there.jobs["2"])
    there.go(2 * SETTINGS.settle_s)
    assert there.where("2") == ("n1", 0)
    assert there.tickets["1"].since == 0, "its patience begins anew"


def test_tasks_of_an_array_get_one_reservation_after_the_other() -> None:
    there = slurm()
    there.add(running(job(9), "n1", end=T0 + 100))
    there.submit(5, "exclusion:a,request:0.9", array_id=5, tasks="1,2", limit_s=50)
    there.go(90)
    there.submit(1, "request:0.2", limit_s=300)
    there.go(15)
    assert (there.where("5_1"), there.where("1")) == (("n1", 0), None)
    there.go(60)
    assert there.where("1") == ("n1", 0), "the array as a whole waits anew"
    there.go(320 + PATIENCE)
    assert "5_2" not in there.jobs or there.where("5_2")


def test_with_none_allowed_nothing_is_kept() -> None:
    there = replace(slurm(), settings=SETTINGS)
    there.add(running(job(9), "n1"))
    there.submit(1, "exclusion:a")
    there.go(1000, 5)
    comes(there, 2, "request:0.2")
    assert there.where("2") == ("n1", 0)


def test_jobs_that_end_nobody_knows_when_keep_nobody_waiting_for_ever() -> None:
    """A job that cannot be promised a time shares the GPU's free times with the others."""
    there = waited()
    comes(there, 2, "request:0.2")
    assert KEPT in reason(there.jobs["2"])
    there.go(PATIENCE)
    assert there.where("2") == ("n1", 0)
    comes(there, 3, "request:0.2")
    assert there.where("3") == ("n1", 0)
    there.go(PATIENCE + 10)
    comes(there, 4, "request:0.2")
    assert KEPT in reason(there.jobs["4"]), "its wait has counted from the beginning"


def test_jobs_that_run_longer_than_their_limits_keep_nobody_waiting_for_ever() -> None:
    """As with OverTimeLimit. Each time it is kept for no longer than was known at first."""
    there = slurm()
    there.end_in_time = lambda: None  # type: ignore[method-assign]
    there.add(running(job(9), "n1", end=T0 + 100))
    there.submit(1, "exclusion:a")
    there.go(PATIENCE + 10)
    there.submit(2, "request:0.2")
    there.go(100 + PATIENCE - there.now + T0)
    assert KEPT in reason(there.jobs["2"])
    there.go(5)
    assert there.where("2") == ("n1", 0)


def test_many_jobs_of_one_user_keep_a_gpu_no_longer_than_one() -> None:
    there = slurm()
    there.add(running(job(9), "n1"))
    for number in range(1, 6):
        there.submit(number, "exclusion:a")
    there.go(PATIENCE + 10)
    there.submit(10, "request:0.2", user_id=1001)
    there.go(PATIENCE)
    assert there.where("10") == ("n1", 0)


def test_jobs_for_which_nothing_can_be_kept_are_in_nobody_s_way() -> None:
    there = slurm(2)
    there.nodes[1] = replace(there.nodes[1], usable=False)
    there.add(running(job(9), "n1", end=T0 + 500))
    for number in range(100, 120):
        there.submit(number, "exclusion:a", required="n2")
    there.go(2)
    there.submit(1, "exclusion:b")
    there.go(PATIENCE + 10)
    comes(there, 2, "request:0.2")
    assert KEPT in reason(there.jobs["2"])


def test_what_is_remembered_does_not_change_while_nothing_happens() -> None:
    """It is written to the disk whenever it does."""
    there = slurm(2)
    there.nodes[1] = replace(there.nodes[1], usable=False)
    there.add(running(job(9), "n1", end=T0 + 5000))
    there.submit(1, "exclusion:a", required="n2")
    there.go(PATIENCE + HOLD)
    before = there.tickets
    there.go(5)
    assert there.tickets == before


def test_nothing_is_kept_for_a_job_whose_partition_is_closed() -> None:
    there = slurm()
    there.add(running(job(9), "n1", end=T0 + 1000))
    there.submit(1, "exclusion:a", partitions=("low",))
    there.nodes[0] = replace(there.nodes[0], partitions=("gpu", "low"))
    there.go(PATIENCE + 10)
    comes(there, 2, "request:0.2")
    assert KEPT in reason(there.jobs["2"])
    there.closed = frozenset({"low"})
    there.go(2)
    assert there.where("2") == ("n1", 0)


def test_nothing_is_kept_for_an_array_that_may_have_no_further_task() -> None:
    there = slurm(2)
    there.add(running(job(9), "n1", end=T0 + 1000))
    there.submit(5, "exclusion:a,request:0.9", array_id=5, tasks="1,2,3")
    there.go(PATIENCE + 10)
    assert there.where("5_1") == ("n2", 0)
    comes(there, 2, "request:0.2", required="n1")
    assert KEPT in reason(there.jobs["2"])
    whole = there.jobs["5_[2,3]"]
    there.jobs["5_[2,3]"] = replace(whole, tasks_at_once=1)
    there.go(2)
    assert there.where("2") == ("n1", 0)
    assert there.tickets["5"].since == 0


STEP = 5  # seconds
LABELS = ["request:0.3", "request:0.5", "affinity:a", "anti-affinity:a", "request:0.1"]
COMING = st.tuples(
    *(st.sampled_from(LABELS), st.integers(1, 2)),
    *(st.integers(1, 5), st.sampled_from([40, 100, 100, 300, 0])),
)
WANTED = st.sampled_from(["exclusion:b", "request:0.9", "affinity:c", "affinity:a,request:0.6"])


@settings(deadline=None, max_examples=60)
@given(st.lists(COMING, min_size=15, max_size=25), st.integers(1, 2), st.integers(1, 2), WANTED)
@pytest.mark.long
def test_it_starts_by_the_time_that_is_known_when_a_gpu_is_first_kept_for_it(
    coming: list[tuple[str, int, int, int]], nodes: int, gpus: int, options: str
) -> None:
    """Whatever other jobs the placer has to place: at the latest when the time limits say."""
    there = replace(slurm(nodes, gpus=gpus, shards=3), settings=replace(SETTINGS, reserve_s=20))
    promise: float | None = None
    for number, (asks, shards, pause, limit_s) in enumerate(coming, 100):
        there.submit(number, asks, shards=shards, limit_s=limit_s, priority=10**8)
        if number == 103:
            there.submit(1, options, shards=2)
        for _ in range(pause):
            kept = there.turn().reserved
            if kept is not None and kept.job.job_id == 1:
                assert promise is None or kept.free.at <= max(promise, there.now)
                promise = kept.free.at
            there.schedule()
            there.now += STEP
            there.end_in_time()
            waits = "1" in there.jobs and there.jobs["1"].pending
            assert not waits or promise is None or there.now <= promise + 2 * STEP

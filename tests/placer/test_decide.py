"""What the placer does next, case by case, with a Slurm in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leased.placer import marks
from leased.placer.decide import decide, releases
from leased.placer.model import NOW, View
from leased.placer.putting_off import LONGEST_HOLDS
from leased.slurm.nodes_json import UNKNOWN
from tests.placer.scenes import HOLD, SETTINGS, T0, Slurm, job, node, reason, running, understand


def two_nodes(**fields: int) -> Slurm:
    return Slurm([node("n1", **fields), node("n2", **fields)])


def test_a_job_that_fits_is_bound_to_a_node_and_may_start_at_once() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a"))
    slurm.turn()
    (update,) = slurm.made
    assert (update.job, update.start, update.node) == ("1", NOW, "n1")
    assert (update.comment, update.admin_comment) == (None, "")
    slurm.schedule()
    slurm.turn()
    assert len(slurm.made) == 1
    assert slurm.where("1") == ("n1", 0)


def test_an_anti_affinity_pair_is_on_two_gpus_and_the_third_waits() -> None:
    slurm = two_nodes()
    slurm.add(*(job(n, "anti-affinity:s") for n in (1, 2, 3)))
    slurm.go(3)
    assert {slurm.where("1"), slurm.where("2")} == {("n1", 0), ("n2", 0)}
    assert "n1 GPU 0: a job with anti-affinity:s is there" in reason(slurm.jobs["3"])
    slurm.end("2")
    slurm.go(2)
    assert slurm.where("3") == ("n2", 0)
    assert slurm.jobs["3"].comment == ""


def test_an_affinity_pair_is_on_one_gpu_though_another_is_used_first() -> None:
    slurm = two_nodes()
    slurm.add(running(job(9), "n1"), job(1, "affinity:a"), job(2, "affinity:a"))
    slurm.go(2)
    assert slurm.where("1") == slurm.where("2") == ("n2", 0)


def test_jobs_of_a_chain_of_one_user_are_on_one_gpu() -> None:
    """The first goes where there is room; one for which there is none beside it waits, though
    another GPU is free."""
    slurm = Slurm([node(name, shards=3) for name in ("n1", "n2", "n3")])
    theirs = job(9, "chain:v", user_id=1001, shards=3)
    slurm.add(running(theirs, "n1"), *(job(n, "chain:v") for n in (1, 2, 3, 4)))
    slurm.go(3)
    assert [slurm.where(str(n)) for n in (1, 2, 3)] == [("n2", 0)] * 3, "theirs is another chain"
    assert "chain:v is on n2 GPU 0, where the job cannot be: " in reason(slurm.jobs["4"])
    slurm.end("1")
    slurm.go(2)
    assert slurm.where("4") == ("n2", 0)


def test_shares_are_not_added_up_beyond_a_gpu() -> None:
    slurm = two_nodes()
    slurm.add(*(job(n, "request:0.6") for n in (1, 2, 3)))
    slurm.go(2)
    assert slurm.where("1") != slurm.where("2")
    assert "0.4 of its time is left, and the job requests 0.6" in reason(slurm.jobs["3"])


def test_memory_of_the_node_is_not_given_out_twice() -> None:
    slurm = Slurm([node("n1", free_memory=1000)])
    slurm.add(*(job(n, "request:0.1", memory=600) for n in (1, 2)))
    slurm.turn()
    assert [update.job for update in slurm.made if update.node] == ["1"]


def test_a_job_that_waits_is_put_off_again_before_its_time_is_over() -> None:
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9), "n1"), job(1, "exclusion:a"))
    for _ in range(3 * HOLD):
        slurm.turn()
        assert slurm.jobs["1"].begin > slurm.now
        slurm.schedule()
        slurm.now += 1
    assert slurm.where("1") is None
    assert sum(update.start is not None for update in slurm.made) < 8


def test_the_gpu_that_slurm_would_give_counts_and_the_reason_names_it() -> None:
    slurm = Slurm([node("n1", gpus=2)])
    slurm.add(running(job(9, "anti-affinity:s"), "n1"), job(1, "anti-affinity:s"))
    slurm.go(2)
    assert slurm.where("1") is None
    assert "n1 GPU 1: Slurm would give the job GPU 0 of this node" in reason(slurm.jobs["1"])


def test_a_type_names_the_gpu() -> None:
    typed = replace(node("n1"), gpus=(("g0", 4), ("g1", 4)))
    slurm = Slurm([typed])
    slurm.add(running(job(9, "anti-affinity:s"), "n1"), job(1, "anti-affinity:s", gpu_type="g1"))
    turn = slurm.turn()
    assert [ticket.gpu for _, _, ticket in turn.starts if ticket] == [1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shards": 5}, "4 of its 4 shards are free"),
        ({"gpu_type": "h200"}, "no node that it may use has a GPU of type h200 that jobs share"),
        ({"partitions": ("cpu",)}, "no node that it may use has a GPU that jobs share"),
        ({"excluded": "n[1-2]"}, "no node that it may use"),
        ({"features": "big&new"}, "no node that it may use"),
    ],
)
def test_a_job_that_can_never_be_placed_says_so(fields: dict[str, object], words: str) -> None:
    slurm = two_nodes()
    slurm.add(job(1, "exclusion:a", **fields))
    slurm.go(2)
    assert reason(slurm.jobs["1"]).startswith(" [gpu-lease-placer: it can never start: ".strip())
    assert words in reason(slurm.jobs["1"])
    slurm.go(2 * HOLD, 20)
    assert slurm.where("1") is None


def test_users_comments_stay() -> None:
    slurm = Slurm([node("n1")])
    mine = 'mine; "x" = $(y) [z]'
    marked = job(1, "exclusion:a").admin_comment
    slurm.add(
        running(job(9), "n1"), job(1, "exclusion:a", comment=mine, admin_comment=f"site {marked}")
    )
    slurm.go(2)
    assert slurm.jobs["1"].comment.startswith(f"{mine} [gpu-lease-placer: waits: ")
    slurm.end("9")
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)
    assert (slurm.jobs["1"].comment, slurm.jobs["1"].admin_comment) == (mine, "site")


def test_a_held_job_is_not_let_start_and_its_hold_stays() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a", priority=0, reason="JobHeldUser"))
    slurm.go(2 * HOLD, 20)
    assert not any(update.start == NOW for update in slurm.made)
    assert slurm.jobs["1"].priority == 0
    slurm.jobs["1"] = replace(slurm.jobs["1"], priority=5)
    slurm.go(2)
    assert slurm.where("1")


def test_a_job_that_depends_on_others_is_placed_once_they_have_ended() -> None:
    """Meanwhile it takes no place from others, and is not tried in vain."""
    slurm = Slurm([node("n1")])
    slurm.starts = lambda one: not one.reason.startswith("Dependency")
    slurm.add(
        job(1, "exclusion:a", reason="Dependency"), job(2, "exclusion:b"), job(3, "exclusion:c")
    )
    slurm.go(2)
    assert slurm.where("2") == ("n1", 0)
    slurm.go(4 * HOLD, 5)
    slurm.end("2")
    slurm.jobs["1"] = replace(slurm.jobs["1"], reason="BeginTime")
    slurm.go(3)
    assert slurm.where("1") == ("n1", 0)


def test_jobs_without_labels_and_a_request_are_never_touched() -> None:
    slurm = two_nodes()
    slurm.add(*(job(n) for n in range(1, 5)), job(8, comment="[gpu-lease-placer: waits: x]"))
    slurm.go(5)
    assert slurm.made == []


def test_a_begin_time_of_its_user_s_is_kept() -> None:
    slurm = two_nodes()
    begin = T0 + 2 * HOLD
    mark = f"[gpu-lease-placer {begin} {begin + HOLD} affinity:a]"
    slurm.add(job(1, "affinity:a", begin=begin + HOLD, admin_comment=mark))
    while slurm.where("1") is None:
        slurm.go(1)
    assert begin <= slurm.now <= begin + 2


def test_a_begin_time_that_is_changed_later_is_kept() -> None:
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9), "n1"), job(1, "exclusion:a"))
    slurm.go(5)
    begin = slurm.now + 5 * HOLD
    slurm.jobs["1"] = replace(slurm.jobs["1"], begin=begin)
    slurm.end("9")
    while slurm.where("1") is None:
        slurm.go(1)
    assert begin <= slurm.now <= begin + 3


@pytest.mark.parametrize("chosen", [T0 + 40, T0 + HOLD - 1, T0 + HOLD])
def test_a_begin_time_is_its_user_s_unless_it_is_the_one_that_the_placer_has_set(
    chosen: int,
) -> None:
    """Slurm does not say who has set it, so a user who comes back to that second says nothing."""
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a"))
    for begin in (T0 + 40, chosen):  # both between two looks of the placer
        slurm.jobs["1"] = replace(slurm.jobs["1"], begin=begin)
    slurm.turn()
    assert slurm.jobs["1"].begin == (T0 if chosen == T0 + HOLD else chosen)


def test_a_job_that_slurm_does_not_start_keeps_no_place() -> None:
    slurm = Slurm([node("n1")])
    slurm.starts = lambda one: one.job_id != 1
    slurm.add(job(1, "exclusion:a"), job(2, "exclusion:b"))
    slurm.go(SETTINGS.settle_s + 5)
    assert slurm.where("2") == ("n1", 0)
    first = slurm.jobs["1"]
    assert (first.required, first.begin > slurm.now) == ("", True)
    assert "Slurm did not start it on n1 (BeginTime)" in reason(first) or "waits" in reason(first)
    slurm.end("2")
    slurm.starts = lambda _: True
    slurm.go(4 * SETTINGS.settle_s)
    assert slurm.where("1") == ("n1", 0)


def test_a_clock_that_is_set_back_keeps_no_place_for_longer() -> None:
    slurm = Slurm([node("n1")])
    slurm.starts = lambda one: one.job_id != 1
    slurm.add(job(1, "exclusion:a"))
    slurm.go(2)
    slurm.now -= 3600
    slurm.submit(2, "exclusion:b")
    slurm.go(2 * SETTINGS.settle_s, 5)
    assert slurm.where("2") == ("n1", 0)


def test_a_clock_that_is_set_back_puts_no_job_off_for_longer() -> None:
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9), "n1"), job(1, "exclusion:a"))
    slurm.go(2)
    slurm.now -= 2 * 24 * 3600
    slurm.go(2)
    assert slurm.now < slurm.jobs["1"].begin <= slurm.now + LONGEST_HOLDS * HOLD


def test_a_requeued_job_is_placed_anew() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "anti-affinity:a"))
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)
    slurm.jobs["1"] = replace(
        slurm.jobs["1"], state="PENDING", nodes="", given={}, begin=slurm.now + 120
    )
    slurm.nodes[0] = replace(slurm.nodes[0], usable=False)
    slurm.go(1)
    assert slurm.jobs["1"].required == ""
    slurm.go(125)
    assert slurm.where("1") == ("n2", 0)


def test_a_job_whose_node_is_removed_from_the_configuration_is_placed_on_another() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "anti-affinity:a"))
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)
    slurm.jobs["1"] = replace(slurm.jobs["1"], state="PENDING", nodes="", given={}, begin=slurm.now)
    del slurm.nodes[0]
    slurm.go(2 * SETTINGS.settle_s)
    assert slurm.where("1") == ("n2", 0)


def test_a_job_that_is_left_to_slurm_is_bound_to_no_node() -> None:
    slurm = two_nodes()
    slurm.starts = lambda _: False
    slurm.add(job(1, "anti-affinity:a"))
    slurm.go(2)
    slurm.starts = lambda _: True
    slurm.jobs["1"] = replace(slurm.jobs["1"], reservation="exam")
    slurm.now += 2 * SETTINGS.settle_s
    slurm.turn()
    slurm.turn()
    slurm.go(2 * SETTINGS.settle_s)
    assert slurm.jobs["1"].required == ""


def test_a_node_that_its_user_asks_for_stays_asked_for() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a", required="n2"))
    slurm.go(2)
    assert slurm.where("1") == ("n2", 0)
    assert [update.node for update in slurm.made] == [None]


@pytest.mark.parametrize(
    "fields",
    [
        {"features": "[a|b]"},
        {"features": "a*2"},
        {"reservation": "exam"},
        {"deadline": T0 + 60},
        {"required": "n[1-2]"},
        {"is_het": True},
    ],
    ids=str,
)
def test_jobs_that_the_placer_does_not_understand_are_left_to_slurm(
    fields: dict[str, object],
) -> None:
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a", **fields))
    slurm.turn()
    (update,) = slurm.made
    assert (update.start, update.node, update.admin_comment) == (NOW, None, "")
    slurm.go(3)
    assert len(slurm.made) == 1


def test_tasks_of_an_array_are_placed_one_by_one() -> None:
    slurm = two_nodes()
    whole = job(1, "anti-affinity:a", array_id=1, tasks="1,2,3,4")
    slurm.add(whole)
    slurm.go(3)
    assert {slurm.where("1_1"), slurm.where("1_2")} == {("n1", 0), ("n2", 0)}
    (left,) = [one for one in slurm.jobs.values() if one.tasks]
    assert left.tasks == "3,4"
    assert "anti-affinity:a is there" in reason(left)
    slurm.end("1_1")
    slurm.go(3)
    assert slurm.where("1_3")
    assert slurm.jobs["1_3"].comment == ""


def test_an_array_s_own_limit_is_kept() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "affinity:a", array_id=1, tasks="1,2,3,4", tasks_at_once=2))
    slurm.go(5)
    assert [label for label in slurm.jobs if slurm.where(label)] == ["1_1", "1_2"]


def test_a_mark_that_means_nothing_is_taken_away_and_the_job_begins() -> None:
    slurm = two_nodes()
    slurm.add(job(1, "tq:60"), job(2, "affinity:a", shards=0))
    slurm.go(2)
    assert slurm.where("1")
    assert {one.admin_comment for one in slurm.jobs.values()} == {""}


def test_a_job_of_another_user_with_the_number_of_an_old_one_is_not_taken_for_it() -> None:
    slurm = two_nodes()
    slurm.add(running(job(1, "exclusion:a"), "n1"))
    slurm.turn()
    slurm.jobs = {}
    slurm.add(job(1, user_id=5, begin=T0 + 50))
    made = len(slurm.made)
    slurm.go(60)
    assert len(slurm.made) == made


def test_jobs_are_given_back_with_their_nodes_and_comments() -> None:
    slurm = Slurm([node("n1")])
    slurm.starts = lambda one: one.job_id == 9
    slurm.add(
        running(job(9), "n1"),
        job(1, "exclusion:a", comment="mine"),
        job(2, "affinity:b", priority=2_000_000),
        job(3, "affinity:c", priority=0),
    )
    slurm.add(replace(job(4), begin=T0 + 9000), job(5, "affinity:d", begin=T0 + 9000))
    slurm.go(3)
    slurm.nodes.append(node("n2"))
    slurm.turn()
    assert slurm.jobs["2"].required == "n2"
    for update, _, _ in releases(slurm.view(), slurm.tickets, understand):
        slurm.change(update)
    for number in "123":
        one = slurm.jobs[number]
        assert one.begin <= slurm.now + 20
        assert (one.required, marks.mark_of(one.admin_comment)) == ("", None)
    assert slurm.jobs["1"].comment == "mine"
    assert slurm.jobs["3"].priority == 0
    assert {slurm.jobs[number].begin for number in "45"} == {T0 + 9000}


def test_a_placer_that_is_stopped_and_started_knows_for_how_long_jobs_have_waited() -> None:
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9), "n1"), job(1, "exclusion:a"))
    slurm.go(10)
    for update, key, ticket in releases(slurm.view(), slurm.tickets, understand):
        slurm.change(update)
        assert ticket is not None
        slurm.tickets[key] = ticket
    slurm.now += 5
    slurm.go(60)
    assert slurm.jobs["1"].begin > slurm.now
    assert (slurm.tickets["1"].since, slurm.tickets["1"].begin) == (T0, 0)


def test_a_thousand_jobs_that_wait_cost_few_changes() -> None:
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9999), "n1"))
    slurm.add(*(job(n, "exclusion:a") for n in range(1, 1001)))
    slurm.turn()
    slurm.made.clear()
    slurm.go(2 * HOLD, 10)
    assert all(one.begin > slurm.now for one in slurm.jobs.values() if one.pending)
    assert len(slurm.made) / (2 * HOLD) < 4


def test_nothing_is_done_twice_while_slurm_starts_a_job() -> None:
    slurm = two_nodes()
    slurm.starts = lambda _: False
    slurm.add(*(job(n, "affinity:a") for n in (1, 2)))
    slurm.go(SETTINGS.settle_s)
    assert len(slurm.made) == 2


def test_an_empty_cluster_keeps_jobs_waiting() -> None:
    turn = decide(View(T0, (job(1, "affinity:a"),), ()), {}, SETTINGS, understand)
    assert turn.starts == []


def test_a_job_whose_node_is_not_known_for_a_while_waits() -> None:
    """After a restart of slurmctld: it can start later, and is not left to Slurm."""
    slurm = Slurm([node("n1", shards=UNKNOWN, usable=False)])
    slurm.add(job(1, "exclusion:a"), job(2, "exclusion:b", required="n1"))
    slurm.go(2)
    for number in ("1", "2"):
        assert "waits: no GPU can take the job; n1: the node takes no jobs" in reason(
            slurm.jobs[number]
        )
    slurm.nodes[0] = node("n1")
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)
    assert "waits: " in reason(slurm.jobs["2"])

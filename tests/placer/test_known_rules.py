"""What nodes allow and give by default, as the placer heeds it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from leased.admin.node_rules import NodeRules, written
from leased.admin.user_limits import UserLimits
from leased.config import config, options
from leased.config.job_sets import Owner
from leased.placer.known_rules import KnownRules, asked
from leased.placer.model import Rules, View
from tests.placer.scenes import HOLD, T0, Slurm, job, node, reason, running

LIMITS = UserLimits.of(config.Config())


def node_rules(defaults: str = "", **limits: Any) -> NodeRules:
    return NodeRules(
        replace(LIMITS, **limits),
        options.parse(defaults).over(options.PLAIN),
    )


def moded(*modes: str) -> Rules:
    """A node whose GPUs have these modes; of none is said."""
    return partial(asked, replace(node_rules(), modes=frozenset(modes)))


@pytest.mark.parametrize(
    ("options", "where"),
    [("space:mps", "n2"), ("sm:30%", "n2"), ("space:time", "n1"), ("sm:30%,affinity:a", "n2")],
)
def test_a_job_goes_to_a_node_that_has_its_mode(options: str, where: str) -> None:
    slurm = two_nodes(moded("time"), moded("mps"))
    slurm.add(job(1, options))
    slurm.go(2)
    assert slurm.where("1") == (where, 0)


@pytest.mark.parametrize(
    ("options", "mode", "words"),
    [
        ("space:mps", "time", "space:mps, but none of its GPUs is shared by MPS; leave space out"),
        ("sm:30%", "time", "sm:0.3, but none of its GPUs is shared by MPS; leave sm out"),
        ("space:time", "mps", "space:time, but its GPUs are shared by MPS; leave space out"),
    ],
)
def test_a_mode_that_no_node_has_is_said_with_the_remedy(
    options: str, mode: str, words: str
) -> None:
    slurm = two_nodes(moded(mode), moded(mode))
    slurm.add(job(1, options))
    slurm.turn()
    assert words in reason(slurm.jobs["1"])
    slurm.rules["n2"] = moded()
    slurm.go(2)
    assert slurm.where("1") == ("n2", 0), "what it has is not known"


def shared(together: str) -> Rules:
    """A node whose GPU is shared by MPS, for jobs that may be there together."""
    return partial(
        asked, replace(node_rules(), modes=frozenset({"mps"}), together=((0, together),))
    )


@pytest.mark.parametrize(
    ("together", "there", "comes", "user", "where"),
    [
        ("user", "", "space:mps", 1001, "n2"),
        ("user", "", "space:mps", 1000, "n1"),
        ("user", "chain:a", "chain:a", 1001, "n2"),
        ("chain", "", "space:mps", 1000, "n2"),
        ("chain", "chain:a", "chain:b", 1000, "n2"),
        ("chain", "chain:a", "chain:a", 1000, "n1"),
        ("any", "", "space:mps", 1001, "n1"),
    ],
)
def test_under_mps_a_job_is_beside_those_that_the_node_allows(
    together: str, there: str, comes: str, user: int, where: str
) -> None:
    """Also where what is there has not been placed by the placer."""
    slurm = two_nodes(shared(together), shared(together))
    slurm.add(running(job(9, there), "n1"), job(1, comes, user_id=user))
    slurm.go(2)
    assert slurm.where("1") == (where, 0)


@pytest.mark.parametrize(
    ("together", "words"),
    [
        ("user", "and one of another user is there"),
        ("chain", "and one outside this job's chain is there"),
    ],
)
def test_who_may_be_beside_nobody_under_mps_waits_until_they_have_ended(
    together: str, words: str
) -> None:
    slurm = Slurm([node("n1")], rules={"n1": shared(together)})
    slurm.add(job(1, "space:mps"), job(2, "space:mps", user_id=1001))
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0), "what it has let start counts"
    said = f"n1 GPU 0: under MPS only jobs of one {together} are on it at once, {words}"
    assert said in reason(slurm.jobs["2"])
    slurm.end("1")
    slurm.go(2)
    assert slurm.where("2") == ("n1", 0)


def test_a_gpu_without_mps_is_for_jobs_of_all_users() -> None:
    """On a node that has both: the first GPU, which Slurm takes, is shared by time slices."""
    both = replace(node_rules(), modes=frozenset({"mps", "time"}), together=((1, "user"),))
    slurm = Slurm([node("n1", gpus=2)], rules={"n1": partial(asked, both)})
    slurm.add(running(job(8), "n1", 0), running(job(9), "n1", 1))
    slurm.add(job(1, "request:0.1", user_id=1001))
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)


def rules(defaults: str = "", **limits: Any) -> Rules:
    return partial(asked, node_rules(defaults, **limits))


def two_nodes(one: Rules | None, two: Rules | None) -> Slurm:
    said = {"n1": one, "n2": two}
    known = {name: each for name, each in said.items() if each is not None}
    return Slurm([node("n1"), node("n2")], rules=known)


@pytest.mark.parametrize(
    ("options", "limits", "words"),
    [
        ("exclusion:x", {}, "exclusion:x is not allowed on this site; leave it out, or ask for"),
        ("request:0.8", {"request_max": 0.5}, "on this site; request 0.5 or less"),
        ("affinity:a,tq:20m", {}, "tq:1200s is outside this site's limits; choose tq between"),
        ("affinity:a,lock:off", {"lock_off": False}, "use lock:auto or lock:on"),
    ],
)
def test_what_all_nodes_forbid_waits_and_says_so_with_the_remedy(
    options: str, limits: dict[str, Any], words: str
) -> None:
    slurm = two_nodes(rules(**limits), rules(**limits))
    slurm.add(job(1, options))
    slurm.turn()
    assert reason(slurm.jobs["1"]).startswith("[gpu-lease-placer: it can never start: ")
    assert words in reason(slurm.jobs["1"])
    slurm.go(2 * HOLD, 20)
    assert slurm.where("1") is None
    slurm.rules["n2"] = rules(exclusion=True, request_max=1.0, quantum_max_ns=10**13)
    slurm.go(2)
    assert slurm.where("1") == ("n2", 0)


def test_a_job_goes_to_the_node_that_allows_it() -> None:
    slurm = two_nodes(rules(), rules(exclusion=True))
    slurm.add(job(1, "exclusion:x"), job(2, "request:0.1"), job(3, "exclusion:y"))
    slurm.go(2)
    assert (slurm.where("1"), slurm.where("2")) == (("n2", 0), ("n1", 0))
    assert "waits: no GPU can take the job; n2 GPU 0: a job without exclusion:y is there" in (
        reason(slurm.jobs["3"])
    )


def test_a_node_that_says_nothing_allows_everything() -> None:
    slurm = two_nodes(rules(), None)
    slurm.add(job(1, "exclusion:x"))
    slurm.go(2)
    assert slurm.where("1") == ("n2", 0)


def test_default_requests_are_added_up() -> None:
    slurm = Slurm([node("n1")], rules={"n1": rules("request:0.3")})
    slurm.add(running(job(8), "n1"), running(job(9), "n1"))
    slurm.add(job(1, "request:0.5"), job(2, "anti-affinity:a"))
    slurm.go(2)
    assert "0.4 of its time is left, and the job requests 0.5" in reason(slurm.jobs["1"])
    assert slurm.where("2") == ("n1", 0)
    slurm.end("8")
    slurm.go(2)
    assert "the job requests 0.5" in reason(slurm.jobs["1"]), "job 2 requests 0.3 too, by default"
    slurm.end("9")
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)


def test_default_labels_keep_jobs_apart() -> None:
    slurm = two_nodes(rules("exclusion:only", exclusion=True), None)
    slurm.add(running(job(9), "n1"), job(1, "anti-affinity:a"), job(2, "exclusion:x"))
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0), "it has exclusion:only there, by default"
    assert slurm.where("2") == ("n2", 0)


def test_a_default_affinity_is_kept_together_with_jobs_that_say_it() -> None:
    slurm = two_nodes(None, rules("affinity:a"))
    slurm.add(running(job(9, "affinity:a"), "n1"), job(1, "affinity:a"), job(2, "request:0.1"))
    slurm.go(2)
    assert slurm.where("1") == slurm.where("2") == ("n1", 0)


def test_what_was_let_start_counts_with_its_defaults() -> None:
    slurm = Slurm([node("n1")], rules={"n1": rules("request:0.6")})
    slurm.add(job(1, "affinity:a"), job(2, "affinity:a"))
    slurm.turn()
    assert [update.job for update in slurm.made if update.node] == ["1"]
    assert "0.4 of its time is left, and the job requests 0.6" in reason(slurm.jobs["2"])


def test_comments_become_rules_and_what_is_not_believed_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    good = written("of the site", node_rules(), T0)
    there = [
        node("n1", comment=good),
        node("n2", comment="[gpu-leased 1 0 x=y]"),
        node("n3", comment="ours"),
        node("n4", comment=good.replace("[gpu-leased 1", "[gpu-leased 7")),
    ]
    known = KnownRules()
    view = View(T0, (), tuple(there))
    for _ in range(2):
        found = known.added(view).rules
    assert list(found) == ["n1"]
    assert found["n1"]("exclusion:x", Owner(1000)).refusal
    assert [record.getMessage() for record in caplog.records] == [
        "what n2 allows is unknown, by its Comment: its time is more than a day from now",
        "what n4 allows is unknown, by its Comment: it is of version 7, and only 1 is known here",
        "what these nodes allow is unknown (daemon.tell_placer): n3",
    ]
    assert not known.added(replace(view, now=T0 + 100_000)).rules, "its daemon no longer renews it"


def test_options_that_a_node_cannot_read_are_refused_there() -> None:
    assert rules()("nonsense", Owner(1000)).refusal
    assert rules("request:0.2")("", Owner(1000)).request.share == 0.2

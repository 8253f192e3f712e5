"""Offline jobs beside online ones: who goes where."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from leased.admin.node_rules import NodeRules
from leased.admin.user_limits import UserLimits
from leased.config.config import Config
from leased.config.job_sets import JobSet
from leased.config.options import PLAIN
from leased.matching.model import USAGE, Model, Weights, features
from leased.matching.profile import Kind, Profile
from leased.placer.known_rules import asked
from leased.placer.model import Settings
from leased.slurm.queue_json import QueuedJob
from tests.placer.scenes import HOLD, T0, Slurm, job, node, running

pytest.importorskip("scipy.optimize")  # before a test: it starts threads that stay

COUNT = len(features(Profile(0), Profile(0), USAGE))
NAMES = {"light": 0.1, "heavy": 0.9, "small": 0.2, "large": 1.0}


def model(speed: float = 0.9, both: float = -0.5, slowdown: float = 1.0) -> Model:
    """Of which the speed falls by what both work."""
    weights = [speed, *[0.0] * (COUNT - 1)]
    weights[4] = both
    slower = [math.log(slowdown), *[0.0] * (COUNT - 1)]
    return Model({USAGE: Weights(weights, slower)}, "none", True)


def scene(nodes: int, **settings: Any) -> Slurm:
    made = Slurm([node(f"n{n}") for n in range(1, nodes + 1)])
    made.settings = Settings(hold_s=HOLD, model=model(), **settings)
    made.profiles = {Kind(1000, name): Profile(busy) for name, busy in NAMES.items()}
    return made


def online(number: int, name: str, where: str) -> QueuedJob:
    return running(job(number, "class:online", name=name), where)


def offline(number: int, name: str, **fields: Any) -> QueuedJob:
    return job(number, "class:offline", name=name, **fields)


def test_jobs_go_where_they_are_worth_the_most_together() -> None:
    """Best fit would put the first beside the first."""
    slurm = scene(2)
    slurm.add(online(1, "heavy", "n1"), online(2, "light", "n2"))
    slurm.add(offline(3, "small"), offline(4, "large"))
    slurm.go(5)
    assert (slurm.where("3"), slurm.where("4")) == (("n1", 0), ("n2", 0))


def test_a_class_that_nodes_give_counts_as_one_that_jobs_say() -> None:
    """The services run without having said their class, and without the placer; the batch jobs have
    theirs by their account."""
    online_ones, batch = JobSet(("qos:serve",)), JobSet(("account:batch",))
    rules = NodeRules(UserLimits.of(Config()), PLAIN, online=online_ones, offline=batch)
    slurm = scene(3)
    slurm.rules = {name: partial(asked, rules) for name in ("n1", "n2", "n3")}
    slurm.add(running(job(1, name="heavy", qos="serve"), "n1"))
    slurm.add(running(job(2, name="light", qos="serve"), "n2"))
    slurm.add(online(3, "light", "n3"))
    slurm.add(running(job(4, "request:0.1", name="busy"), "n3"))
    slurm.add(job(5, "anti-affinity:b", name="large", account="batch"))
    slurm.go(5)
    assert slurm.where("5") == ("n2", 0), "beside the service that leaves it most"


def test_an_online_job_goes_where_no_other_one_is_by_its_node() -> None:
    rules = NodeRules(UserLimits.of(Config()), PLAIN, online=JobSet(("partition:gpu",)))
    slurm = scene(2)
    slurm.rules = {name: partial(asked, rules) for name in ("n1", "n2")}
    slurm.add(running(job(1, name="light"), "n1"), running(offline(2, "large"), "n2"))
    slurm.add(job(3, "anti-affinity:x"))
    slurm.go(5)
    assert slurm.where("3") == ("n2", 0)


def test_an_idle_gpu_is_worth_most() -> None:
    slurm = scene(2)
    slurm.add(online(1, "light", "n1"), offline(2, "small"))
    slurm.go(5)
    assert slurm.where("2") == ("n2", 0)


def test_two_offline_jobs_are_not_matched_with_one_place() -> None:
    slurm = scene(2)
    slurm.add(online(1, "light", "n1"), online(2, "heavy", "n2"))
    slurm.add(offline(3, "large"), offline(4, "large"))
    slurm.go(5)
    assert {slurm.where("3"), slurm.where("4")} == {("n1", 0), ("n2", 0)}


def test_tasks_of_an_array_are_matched_one_by_one() -> None:
    slurm = scene(2)
    slurm.add(online(1, "heavy", "n1"), online(2, "light", "n2"))
    slurm.add(offline(3, "large", array_id=3, tasks="1,2"))
    slurm.go(5)
    assert {slurm.where("3_1"), slurm.where("3_2")} == {("n1", 0), ("n2", 0)}


def first_place(change: Any) -> tuple[str, int] | None:
    """Of a job that would be matched with n2, since n1 has the busier service."""
    slurm = scene(2)
    slurm.add(online(1, "heavy", "n1"), online(2, "light", "n2"), offline(3, "large"))
    change(slurm)
    slurm.go(5)
    return slurm.where("3")


def without_profile(slurm: Slurm) -> None:
    del slurm.profiles[Kind(1000, "large")]


def without_model(slurm: Slurm) -> None:
    slurm.settings = Settings(hold_s=HOLD)


def of_another_user(slurm: Slurm) -> None:
    slurm.jobs["3"] = replace(slurm.jobs["3"], user_id=1001)


def bound_by_its_user(slurm: Slurm) -> None:
    slurm.jobs["3"] = replace(slurm.jobs["3"], required="n1")


def label_kept_away(slurm: Slurm) -> None:
    options = "class:online,anti-affinity:a"
    slurm.jobs["2"] = running(job(2, options, name="light"), "n2")
    slurm.jobs["3"] = job(3, "class:offline,anti-affinity:a", name="large")


@pytest.mark.parametrize(
    "change", [without_profile, without_model, of_another_user, bound_by_its_user, label_kept_away]
)
def test_what_cannot_be_matched_is_placed_as_any_other_job(change: Any) -> None:
    assert first_place(lambda _: None) == ("n2", 0)
    assert first_place(change) == ("n1", 0)


def test_without_scipy_best_fit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leased.placer.pairing.is_possible", lambda: False)
    assert first_place(lambda _: None) == ("n1", 0)


def test_an_online_job_goes_where_no_other_is() -> None:
    slurm = scene(2)
    slurm.add(online(1, "light", "n1"), running(job(2, name="other"), "n2"))
    slurm.add(job(3, "class:online", name="heavy"), job(4, "class:online", begin=T0 + HOLD))
    slurm.go(5)
    assert slurm.where("3") == ("n2", 0)
    assert slurm.where("4") is not None, "where each GPU has one, it goes beside another"


def test_a_job_that_may_not_start_takes_no_place_of_others() -> None:
    slurm = scene(1)
    slurm.add(online(1, "light", "n1"))
    slurm.add(offline(2, "small", priority=0), offline(3, "large"))
    turn = slurm.turn()
    assert turn.pairs == {"3": ("n1", 0)}

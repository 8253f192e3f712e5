"""What a node's daemon writes into the node's Comment is what the placer reads there."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.admin import node_rules
from leased.admin.node_rules import NodeRules, Unreadable, read, without, written
from leased.admin.user_limits import UserLimits
from leased.config import config, options
from leased.config.job_sets import JobSet
from leased.placement import api

NOW = 1_800_000_000
DAY = 86400
RULES = NodeRules(UserLimits.of(config.Config()), options.PLAIN)
WRITTEN = written("", RULES, NOW)
LIMITS = st.builds(
    UserLimits,
    quantum_min_ns=st.integers(1, 60_000).map(lambda ms: ms * 1_000_000),
    quantum_max_ns=st.integers(60_000, 86_400_000).map(lambda ms: ms * 1_000_000),
    lock_off=st.booleans(),
    oversub=st.booleans(),
    exclusion=st.booleans(),
    request_max=st.integers(0, 1_000_000).map(lambda millionths: millionths / 1e6),
)
DEFAULTS = st.sampled_from(
    ["", "request:0.2", "affinity:a,anti-affinity:b-c.d", "exclusion:x,tq:500ms,lock:on,mem:20GiB"]
).map(lambda text: options.parse(text).over(options.PLAIN))
COMMENTS: st.SearchStrategy[str] = st.text().filter(lambda text: "[gpu-leased " not in text)


MODES = st.sets(st.sampled_from(["time", "mps"])).map(frozenset)


JOBS = st.sampled_from([(), ("all",), ("partition:serve", "user:7", "account:a-b.c")]).map(JobSet)


TOGETHER = st.dictionaries(st.integers(0, 255), st.sampled_from(api.TOGETHER)).map(
    lambda found: tuple(found.items())
)
ALL = st.builds(NodeRules, LIMITS, DEFAULTS, MODES, JOBS, JOBS, TOGETHER)


@given(ALL, COMMENTS, st.integers(-DAY, DAY))
def test_what_is_written_is_read(rules: NodeRules, comment: str, age: int) -> None:
    made = written(comment, rules, NOW)
    assert read(made, NOW + age) == rules
    assert without(made) == comment
    assert written(made, rules, NOW) == made


def test_names_for_which_there_is_no_room_are_left_out_and_the_rest_is_read() -> None:
    names = [f"account:{n:03}" for n in range(100)]
    odd = ("account:a b", "qos:]", "account:a,b")
    said = replace(RULES, online=JobSet((*odd, *names)))
    found = read(written("", said, NOW), NOW)
    assert found is not None
    assert found.online.words == tuple(names[: len(found.online.words)])
    assert len(found.online.words) > 30
    with pytest.raises(Unreadable, match="a set of jobs in it is serve"):
        read(WRITTEN.replace("]", " online=serve]"), NOW)


def test_what_a_later_release_may_say_of_a_gpu_is_left_out() -> None:
    said = WRITTEN.replace("]", " mps_together=0:user,1:neighbours,x:any,2]")
    found = read(said, NOW)
    assert found is not None
    assert found.together == ((0, "user"),)


def test_a_comment_without_rules_has_none() -> None:
    for comment in ("", "of the site", "[gpu-leased]", "gpu-leased 1", "[gpu-leased is here]"):
        assert read(comment, NOW) is None
        assert without(comment) == comment


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("[gpu-leased 1]", "it is damaged"),
        ("[gpu-leased 1 ]", "it is damaged"),
        (WRITTEN.replace(" tq_min=", " tq min="), "it is damaged"),
        (WRITTEN.replace("[gpu-leased 1", "[gpu-leased 2"), "it is of version 2, and only 1"),
        (WRITTEN.replace("exclusion=no", "exclusion=maybe"), "its exclusion is maybe"),
        (WRITTEN.replace("exclusion=no", "x=no"), "it lacks exclusion"),
        (WRITTEN.replace("request_max=1.000000", "request_max=nan"), "its request_max is nan"),
        (WRITTEN.replace("request_max=1.000000", "request_max=1.5"), "its request_max is 1.5"),
        (WRITTEN.replace("tq_max=600s", "tq_max=-1s"), "its tq_max is -1s"),
        (WRITTEN.replace("lock:auto", "lock:perhaps"), "its options is "),
        (WRITTEN.replace(str(NOW), str(NOW - DAY - 1)), "its time is more than a day from now"),
        (WRITTEN.replace(str(NOW), str(NOW + DAY + 1)), "its time is more than a day from now"),
    ],
)
def test_what_cannot_be_read_is_not_believed(comment: str, words: str) -> None:
    assert comment != WRITTEN
    with pytest.raises(Unreadable, match=words):
        read(comment, NOW)
    assert without(f"of the site {comment}") == "of the site"


def test_what_a_later_release_adds_is_ignored() -> None:
    later = WRITTEN.replace(" options=", " priority=7 options=fair:yes,")
    assert read(later, NOW) == RULES


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for comment in (f"[gpu-leased 1{text}]", WRITTEN.replace("exclusion=no", text)):
        with contextlib.suppress(Unreadable):
            node_rules.read(comment, NOW)

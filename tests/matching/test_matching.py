"""Pairs: what they are worth, and which are made."""

from __future__ import annotations

import itertools
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.matching import assign
from leased.matching.model import (
    SHIPPED,
    USAGE,
    WHOLE,
    Model,
    Speeds,
    Weights,
    features,
    left_over,
    read,
)
from leased.matching.profile import Profile
from tests.gpu.fit_pairs import table
from tests.gpu.jobs import ROOT

pytest.importorskip("scipy.optimize")  # before a test: it starts threads that stay

GIB = 1 << 30
PARTS = st.floats(0, 1)
PROFILES = st.builds(
    Profile,
    busy=PARTS,
    memory=st.integers(0, 80 * GIB),
    burst_ms=st.none() | st.floats(0, 100),
)
WORTHS = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=4,
    )
)


def best(worths: list[list[float]]) -> float:
    """The most that pairs are worth together, by trying all."""
    rows, columns = len(worths), len(worths[0])
    some = [*range(columns), *([None] * rows)]
    worth = 0.0
    for places in itertools.permutations(some, rows):
        pairs = [worths[row][at] for row, at in enumerate(places) if at is not None]
        worth = max(worth, sum(pairs))
    return worth


def constant(speed: float, slowdown: float) -> Model:
    """A model that says the same of all pairs."""
    zeros = [0.0] * (len(features(Profile(0), Profile(0), USAGE)) - 1)
    weights = Weights([speed, *zeros], [math.log(slowdown), *zeros])
    return Model({USAGE: weights}, "none", True)


@given(WORTHS)
def test_pairs_are_worth_the_most_and_nobody_is_in_two(worths: list[list[float]]) -> None:
    found = assign.match(worths)
    assert len(set(found.values())) == len(found)
    assert all(worths[row][column] > 0 for row, column in found.items())
    assert sum(worths[row][column] for row, column in found.items()) == best(worths)


def test_a_greedy_choice_would_be_worth_less() -> None:
    assert assign.match([[1.0, 0.9], [0.9, 0.1]]) == {0: 1, 1: 0}


@pytest.mark.parametrize("worths", [[], [[]], [[0.0, 0.0]]])
def test_where_there_is_no_pair_none_is_made(worths: list[list[float]]) -> None:
    assert assign.match(worths) == {}


def test_without_scipy_nothing_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert not assign.is_possible()
    assert assign.match([[1.0]]) == {}


@pytest.mark.parametrize(
    ("speed", "slowdown", "room", "worth"),
    [
        pytest.param(0.8, 1.0, 80 * GIB, 0.8, id="fits"),
        pytest.param(0.8, 1.0, 0, 0.8, id="size-not-known"),
        pytest.param(0.8, 1.0, 59 * GIB, 0.0, id="memory-does-not-fit"),
        pytest.param(0.8, 1.1, 80 * GIB, 0.4, id="cut-to-half-to-keep-the-online-job-fast"),
        pytest.param(2.0, 1.0, 80 * GIB, 1.0, id="never-faster-than-alone"),
    ],
)
def test_what_a_pair_is_worth(speed: float, slowdown: float, room: int, worth: float) -> None:
    pair = Profile(0.1, 30 * GIB), Profile(0.9, 30 * GIB)
    assert assign.worth(constant(speed, slowdown), *pair, room) == pytest.approx(worth)


@given(PROFILES, PROFILES)
def test_predictions_are_possible_speeds(online: Profile, offline: Profile) -> None:
    speeds = read(SHIPPED.read_text()).predict(online, offline)
    assert 0 < speeds.offline <= 1
    assert speeds.slowdown >= 1


def test_whole_profiles_are_told_from_those_of_the_accounting() -> None:
    usage, whole = Profile(0.1), Profile(0.5, 0, 1.0)
    counts = {kind: len(features(whole, whole, kind)) - 1 for kind in (USAGE, WHOLE)}
    model = Model(
        {
            kind: Weights([speed, *[0.0] * counts[kind]], [0.0] * (counts[kind] + 1))
            for kind, speed in ((USAGE, 0.25), (WHOLE, 0.75))
        },
        "none",
        True,
    )
    assert model.predict(whole, usage) == Speeds(0.75, 1.0)
    assert model.predict(usage, whole) == Speeds(0.25, 1.0)


def test_what_is_left_over() -> None:
    assert left_over(Profile(0.25), Profile(1.0)) == 0.75
    assert left_over(Profile(0.25), Profile(0.5)) == 1.0
    assert left_over(Profile(1.0), Profile(0.0)) == 0.0


def test_the_shipped_file_says_what_it_is_and_so_does_the_document() -> None:
    found = json.loads(SHIPPED.read_text())
    emulated = found["device"].startswith("Emulated")
    assert found["emulated"] is emulated
    assert set(found["errors"]) == {"left_over", USAGE, WHOLE}
    assert table(found["errors"]) in (ROOT / "docs" / "matching.md").read_text()
    assert all(set(found["programs"]) >= {*pair[:2]} for pair in found["pairs"])

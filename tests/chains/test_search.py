"""The search for a division, with models of chains and against all divisions that there are."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.chains.search import MOST_COMPONENTS, PARTS, bound, plain
from tests.chains.model import Chain, tried
from tests.chains.scheduled import Scheduled
from tests.support.together import zip_strict


@st.composite
def chains(draw: st.DrawFn, most: int = MOST_COMPONENTS, crowd: float = 0.1) -> Chain:
    each = draw(st.lists(st.tuples(st.floats(1, 10), st.floats(5, 100)), min_size=2, max_size=most))
    rates, enough = zip_strict(*each)
    return Chain(rates, enough, draw(st.floats(0, crowd)))


@given(chains())
def test_a_division_that_is_kept_is_faster(chain: Chain) -> None:
    n = len(chain.rates)
    found, trials = tried(n, chain.throughput)
    before, after = chain.throughput(plain(n)), chain.throughput(found.division)
    assert found.division == plain(n) or after >= 1.01 * before
    assert found.gain == pytest.approx(after / before - 1)
    assert len(trials) <= bound(n)
    assert all(part in PARTS for division in trials for part in division)


@given(chains(most=6), st.data())
def test_noise_costs_a_hundredth_at_most(chain: Chain, data: st.DataObject) -> None:
    n = len(chain.rates)
    noise = st.floats(0.99, 1.01)
    found, trials = tried(n, lambda division: chain.throughput(division) * data.draw(noise))
    assert chain.throughput(found.division) >= 0.99 * chain.throughput(plain(n)) * (1 - 1e-9)
    assert len(trials) <= bound(n)


def best(chain: Chain) -> float:
    return max(map(chain.throughput, itertools.product(PARTS, repeat=len(chain.rates))))


@given(chains(most=3, crowd=0.0))
def test_it_comes_near_the_best_of_all_divisions(chain: Chain) -> None:
    """It has O(N log S) trials of S^N, and gives the bottleneck all that there is: where two
    components need the same, that is too much."""
    found, _ = tried(len(chain.rates), chain.throughput)
    assert chain.throughput(found.division) >= 0.8 * best(chain)


@pytest.mark.parametrize("slowest", range(4))
def test_it_finds_the_bottleneck(slowest: int) -> None:
    enough = [15.0] * 4
    enough[slowest] = 90.0
    found, _ = tried(4, Chain([10.0] * 4, enough).throughput)
    assert found.bottleneck == slowest
    assert found.division[slowest] == 100
    assert max(part for n, part in enumerate(found.division) if n != slowest) <= 20
    assert found.gain > 0.5


def test_a_component_may_have_more_than_it_had_at_first() -> None:
    """200%/N are a quarter, and the second slowest component of eight needs more than half."""
    chain = Chain([10.0] * 8, [5.0] * 6 + [90.0, 85.0])
    found, trials = tried(8, chain.throughput)
    assert found.division[7] > 75
    assert chain.throughput(found.division) > 0.95 * chain.throughput((5,) * 6 + (100, 95))
    assert len(trials) <= bound(8)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_it_keeps_the_plain_division_where_that_is_best(n: int) -> None:
    """And compares nothing with it."""
    found, trials = tried(n, lambda division: float(sum(division)))
    assert found.division == plain(n)
    assert trials.count(plain(n)) == 1


def test_a_division_that_only_chance_made_fast_is_not_kept() -> None:
    times = iter(range(1000))
    found, _ = tried(3, lambda _: 2.0 if next(times) == 4 else 1.0)
    assert (found.division, found.gain) == (plain(3), 0.0)


def test_a_chain_that_stands_still_keeps_the_plain_division() -> None:
    found, trials = tried(3, lambda _: 0.0)
    assert found.division == plain(3)
    assert len(trials) <= bound(3)


@pytest.mark.parametrize(
    ("work_us", "least", "most"),
    [
        pytest.param((3000, 8000, 5000, 3000), 0.05, 0.10, id="more than a slice"),
        pytest.param((8000, 8000, 8000), 0.05, 0.11, id="alike"),
        pytest.param((500, 500, 500, 500), 0.0, 0.0, id="less than a slice"),
        pytest.param((300, 20000, 300), 0.0, 0.0, id="one that has nearly all"),
    ],
)
def test_time_slices_save_switches_where_there_are_some(
    work_us: tuple[float, ...], least: float, most: float
) -> None:
    """In the model of an H200's scheduler; 2 ms are a slice of the driver's."""
    found, trials = tried(len(work_us), Scheduled(work_us).throughput)
    assert least <= found.gain <= most
    assert (found.division == plain(len(work_us))) == (most == 0.0)
    assert len(trials) <= bound(len(work_us))

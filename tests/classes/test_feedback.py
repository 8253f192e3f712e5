"""The duty of offline jobs beside models of GPUs on which they slow an online one down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leased.classes.feedback import FIRST, LEAST, PRICE, Feedback
from leased.classes.pulse import Work
from tests.classes.model import LOOK_NS, Throttling, steer

HOUR = 7200  # looks
ALLOWED = 0.05
SURE = 0.04  # so much is not known of bursts that differ by themselves


@settings(max_examples=15, deadline=None)
@given(
    slows=st.floats(0, 1.0),
    lag=st.sampled_from([1.0, 0.9]),
    spread=st.floats(0, 0.3),
    seed=st.integers(0, 1000),
)
def test_an_online_job_is_not_slowed_down_by_more_than_is_allowed(
    slows: float, lag: float, spread: float, seed: int
) -> None:
    """lag: clocks follow the load, so that the work is slowed down for a while even alone."""
    run = steer(Throttling(slows, lag=lag, spread=spread, seed=seed), HOUR // 4)
    assert run.lately(run.slowdowns) <= (ALLOWED + SURE) / lag
    assert run.stopped <= 1 / PRICE + (FIRST + 1) / len(run.duties), "to learn what it takes alone"
    needed = 1000 * min(1.0, 0.5 * ALLOWED / slows if slows else 1.0)
    assert run.lately(run.duties) >= 0.7 * max(needed, LEAST), "not cut more than that needs"


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_offline_jobs_are_not_cut_for_what_they_do_not_cause(seed: int) -> None:
    """Something slows the online job down whatever their duty is, but not while they are stopped:
    their copies. They have most of their time."""
    model = Throttling(0.0, inert=0.3, seed=seed)
    alone = Throttling(0.0, seed=seed)
    feedback, duties = Feedback(ALLOWED), []
    for n in range(HOUR):
        duty = feedback.look(n * LOOK_NS, {1: model.said.popleft()})
        alone.run(duty)
        model.run(duty)
        if not duty:
            model.said[-1] = alone.said[-1]
        duties.append(duty)
    assert sum(duties) / len(duties) > 850


def test_it_follows_when_the_cause_comes_and_goes() -> None:
    feedback, model = Feedback(ALLOWED), Throttling(0.0)
    means: list[float] = []
    for slows in (0.0, 0.5, 0.0):
        duties: list[int] = []
        model.slows = slows
        for _ in range(HOUR // 4):
            now = (len(means) * HOUR + len(duties)) * LOOK_NS
            duty = feedback.look(now, {1: model.said.popleft()})
            model.run(duty)
            duties.append(duty)
        means.append(sum(duties[-200:]) / 200)
    assert means[0] > 980
    assert means[1] < 250
    assert means[2] > 980


def test_what_online_jobs_do_not_say_changes_nothing() -> None:
    feedback = Feedback(ALLOWED)
    assert {feedback.look(n * LOOK_NS, {1: None}) for n in range(1000)} == {1000}
    assert {feedback.look(n * LOOK_NS, {1: Work(), 2: None}) for n in range(1000)} == {1000}
    assert feedback.slowdown is None


def test_each_online_job_is_compared_with_itself() -> None:
    """One with long bursts that begins to work more is not taken for a slower one."""
    feedback, duties = Feedback(ALLOWED), []
    for n in range(HOUR // 4):
        many = 5 + 20 * (n > 600)
        said = {1: Work(25, 25 * 3_000_000), 2: Work(many, many * 90_000_000)}
        duties.append(feedback.look(n * LOOK_NS, said))
    assert {duty for duty in duties if duty} == {1000}

"""How slowed down an online job seems that does two kinds of work, of which the mix changes."""

from __future__ import annotations

import pytest

from leased.classes.feedback import Feedback
from leased.classes.health import Health, Signs, State
from tests.classes.language import Language, Mix, alike, changing, rising
from tests.classes.model import LOOK_NS

SEEDS = 8
NO_CUT = 10.0  # as what is allowed
NEAR = 0.02  # of what it takes alone


def errors(mix: Mix, prompts: float, tokens: float, looks: int) -> list[float]:
    """By how much what is seen differs from the truth, by seed."""
    found = []
    for seed in range(SEEDS):
        model, feedback = Language(mix, prompts, tokens, seed=seed), Feedback(NO_CUT)
        for n in range(looks):
            model.run(feedback.look(n * LOOK_NS, {1: model.said.popleft()}))
        assert feedback.slowdown is not None
        found.append(feedback.slowdown - model.slowdown)
    return found


@pytest.mark.parametrize(("prompts", "tokens"), [(0.0, 0.0), (0.12, 0.03), (0.3, 0.2)])
@pytest.mark.parametrize(("mix", "looks"), [(alike, 40), (alike, 120), (changing, 40)])
def test_prompts_and_tokens_are_each_compared_with_themselves(
    mix: Mix, looks: int, prompts: float, tokens: float
) -> None:
    """prompts, tokens: by which part each is slowed down."""
    found = errors(mix, prompts, tokens, looks)
    assert max(map(abs, found)) <= NEAR


@pytest.mark.parametrize(("prompts", "tokens"), [(0.0, 0.0), (0.12, 0.03)])
@pytest.mark.parametrize(("mix", "looks"), [(changing, 120), (rising, 40), (rising, 120)])
def test_what_it_takes_alone_is_learnt_again_where_the_mix_has_become_another(
    mix: Mix, looks: int, prompts: float, tokens: float
) -> None:
    found = errors(mix, prompts, tokens, looks)
    assert sum(map(abs, found)) / SEEDS <= NEAR


@pytest.mark.parametrize("mix", [alike, changing, rising])
def test_a_gpu_is_healthy_while_nobody_knows_that_the_job_is_slowed_down_too_much(mix: Mix) -> None:
    """Prompts take 12% longer, which is more than is allowed and less than what is bad; what the
    job takes alone is known badly after each change of the mix."""
    for seed in range(SEEDS):
        model, feedback, health = Language(mix, 0.12, 0.03, seed=seed), Feedback(0.05), Health()
        seen = []
        for n in range(240):
            model.run(feedback.look(n * LOOK_NS, {1: model.said.popleft()}))
            health.look(n * LOOK_NS, Signs(slowdown=feedback.excess))
            seen.append(health.state)
        assert State.UNHEALTHY not in seen
        assert seen[-1] is State.HEALTHY

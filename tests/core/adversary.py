"""Runs of the adversary: from a seed to what was broken, made as small as can be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from leased import policy
from tests.core.draws import random_scenario
from tests.core.judge import Broken
from tests.core.scenario import Scenario
from tests.core.shrinking import shrink
from tests.core.world import World

Draw = Callable[[int], Scenario]


@dataclass(frozen=True)
class Run:
    """One run: how many events it had, the longest wait over its bound, what was broken."""

    seed: int
    events: int
    worst: float
    fault: str | None = None


def run(seed: int, policy_name: str = policy.DEFAULT, draw: Draw = random_scenario) -> Run:
    world = World(draw(seed), policy_name=policy_name)
    fault = None
    try:
        world.run()
    except Broken as broken:
        fault = str(broken)
    except Exception as failed:
        raise RuntimeError(f"seed {seed}") from failed
    return Run(seed, world.events, world.judge.worst, fault)


def fault_of(scenario: Scenario, policy_name: str = policy.DEFAULT) -> str | None:
    try:
        World(scenario, policy_name=policy_name).run()
    except Broken as broken:
        return str(broken)
    return None


def counterexample(
    seed: int,
    tries: int = 400,
    policy_name: str = policy.DEFAULT,
    draw: Draw = random_scenario,
) -> str:
    """The smallest scenario found from a seed that breaks the same rule, with its fault."""
    scenario = draw(seed)
    kind = _kind(fault_of(scenario, policy_name))
    assert kind is not None, f"seed {seed} breaks nothing"

    def fails(candidate: Scenario) -> bool:
        return _kind(fault_of(candidate, policy_name)) == kind

    small = shrink(scenario, fails, tries)
    return f"seed {seed}: {fault_of(small, policy_name)}\n{small}"


def _kind(fault: str | None) -> str | None:
    """A fault without its numbers."""
    return None if fault is None else re.sub(r"[\d.\[\], ]+", " ", fault.partition(": ")[2])

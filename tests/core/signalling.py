"""Scenarios in which processes handle signals while they wait, seldom or all the time."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.core.scenario import SIGNAL, Poke, Scenario
from tests.core.share_mixes import half_sharing


def signalling_scenario(seed: int) -> Scenario:
    """As half_sharing draws it; and some jobs, or all, handle signals."""
    scenario = half_sharing(seed)
    r = random.Random(f"signals of {seed}")
    who = r.sample(range(len(scenario.jobs)), r.randint(1, len(scenario.jobs)))
    latest = r.choice((60, scenario.seconds)) * 1000
    signals = [
        Poke(r.randint(0, latest), SIGNAL, r.choice(who)) for _ in range(r.choice((3, 40, 400)))
    ]
    pokes = sorted((*scenario.pokes, *signals), key=lambda poke: poke.at)
    return replace(scenario, pokes=tuple(pokes))


def half_signalling(seed: int) -> Scenario:
    """Signals are in every fourth scenario."""
    return half_sharing(seed) if seed % 4 else signalling_scenario(seed)

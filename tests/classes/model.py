"""A GPU on which the bursts of an online job take longer the more an offline job runs."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from leased.classes.feedback import Feedback
from leased.classes.pulse import Work

LOOK_NS = 500_000_000
BURST_NS = 3_100_000
SAMPLE_NS = 2_000_000  # a process looks so often whether it has unfinished work
PER_LOOK = 25
FULL = 1000.0


@dataclass
class Throttling:
    """slows: by which part bursts take longer beside an offline job that always runs. inert: the
    same, but whatever its duty is (its copies, another tenant). lag: of a look, by which the clock
    follows the load. spread: of bursts by themselves."""

    slows: float
    inert: float = 0.0
    lag: float = 1.0
    spread: float = 0.25
    seed: int = 0
    heat: float = 0.0
    said: deque[Work | None] = field(default_factory=lambda: deque([None, None]))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self, duty: float) -> None:
        """From one look to the next. What it says of that is heard at the look after the next."""
        self.heat += self.lag * (duty / FULL - self.heat)
        times = 1 + self.slows * self.heat + self.inert
        ns = sum(self._seen(BURST_NS * times) for _ in range(PER_LOOK))
        self.said.append(Work(PER_LOOK, round(ns)))

    def _seen(self, burst_ns: float) -> float:
        took = burst_ns * self.random.uniform(1 - self.spread, 1 + self.spread)
        return max(0.0, took + self.random.uniform(-SAMPLE_NS, SAMPLE_NS) / 2)


@dataclass
class Run:
    """What a controller chose on a model, look by look."""

    duties: list[int]
    slowdowns: list[float]

    @property
    def stopped(self) -> float:
        return self.duties.count(0) / len(self.duties)

    def lately(self, values: list[float] | list[int]) -> float:
        """The mean of the last quarter."""
        last = values[-len(values) // 4 :]
        return sum(last) / len(last)


def steer(model: Throttling, looks: int, allowed: float = 0.05) -> Run:
    feedback = Feedback(allowed)
    found = Run([], [])
    for n in range(looks):
        duty = feedback.look(n * LOOK_NS, {1: model.said.popleft()})
        model.run(duty)
        found.duties.append(duty)
        found.slowdowns.append(model.slows * model.heat + model.inert)
    return found

"""A GPU on which the bursts of an online job take longer the more an offline job runs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.classes.feedback import Feedback
from leased.classes.pulse import Work
from tests.support.together import pairwise

LOOK_NS = 500_000_000
BURST_NS = 3_100_000
SAMPLE_NS = 2_000_000  # a process looks so often whether it has unfinished work
PER_LOOK = 25
FULL = 1000.0
NOTHING: Mapping[int, Work] = {}


@dataclass
class Throttling:
    """slows: by which part bursts take longer beside an offline job that always runs, for each part
    of its duty that is above some. switches: the same, whatever its duty is, but none while it is
    stopped. tells: of its bursts. lag: of a look, by which the clock follows the load. spread: of
    bursts by themselves."""

    slows: float
    above: float = 0.0
    switches: float = 0.0
    tells: bool = False
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
        self.said.append(Work(PER_LOOK, round(self._seen()), PER_LOOK * self.tells))

    @property
    def slowdown(self) -> float:
        heat = self.slows * max(0.0, self.heat - self.above)
        return heat + self.switches * (self.heat > 0)

    def _seen(self) -> float:
        """How many ns of unfinished work its process sees from one look to the next."""
        draw, burst_ns = self.random.random, BURST_NS * (1 + self.slowdown)
        least, most = 1 - self.spread, 1 + self.spread
        seen = 0.0
        for _ in range(PER_LOOK):
            took = burst_ns * (least + (most - least) * draw())
            seen += max(0.0, took + (draw() - 0.5) * SAMPLE_NS)
        return seen


@dataclass
class Run:
    """What a controller chose on a model, look by look."""

    duties: list[int]
    slowdowns: list[float]

    @property
    def stopped(self) -> float:
        return self.duties.count(0) / len(self.duties)

    @property
    def swing(self) -> float:
        """How far the duty goes up and down in the last half, each way, of its mean, a minute."""
        last = [duty for duty in self.duties[len(self.duties) // 2 :] if duty]
        ways = sum(abs(after - before) for before, after in pairwise(last)) / 2
        return ways / (sum(last) / len(last)) / (len(last) * LOOK_NS / 60e9)

    def lately(self, values: list[float] | list[int]) -> float:
        """The mean of the last quarter."""
        last = values[-len(values) // 4 :]
        return sum(last) / len(last)


def steer(
    model: Throttling, looks: int, allowed: float = 0.05, instead: Mapping[int, Work] = NOTHING
) -> Run:
    """instead: what it says at some looks, by their number."""
    feedback = Feedback(allowed)
    found = Run([], [])
    for n in range(looks):
        said = model.said.popleft()
        duty = feedback.look(n * LOOK_NS, {1: instead.get(n, said)})
        model.run(duty)
        found.duties.append(duty)
        found.slowdowns.append(model.slowdown)
    return found

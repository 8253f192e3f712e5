"""How fast an online and an offline program are on one device, predicted from their profiles.

Where time slices divide a device, one job's work is on it at a time. So what the offline program
gets is what the online one leaves; and the online one is slowed by the switch of the device to it,
once for each burst, if the offline one is at work just then. That is what the features say, as
numbers. Their weights stand in pairs.json with what they were fitted to, by
`python -m tests.gpu.fit_pairs`. There are two sets of them: for online programs whose bursts are
known, and for what the accounting of jobs gives.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from leased.matching.profile import Profile

SHIPPED = Path(__file__).with_name("pairs.json")
SLOWEST = 0.01  # the least speed that is predicted
LEAST_BUSY = 0.02  # of the time: below it a program's profile says hardly more than that it waits
LEAST_MS = 0.1  # of a burst
IDLE = 0.05  # of the time: servers that work for less are taken to have short bursts
USAGE = "usage"  # features of what the accounting of jobs has
WHOLE = "whole"  # of whole profiles: the online program's bursts are known


def left_over(online: Profile, offline: Profile) -> float:
    """The part of its speed alone that the offline program would have if it got exactly the time
    that the online one leaves, without a loss."""
    return min(1.0, (1 - min(1.0, online.busy)) / max(LEAST_BUSY, offline.busy))


def features(online: Profile, offline: Profile, kind: str) -> list[float]:
    """kind: USAGE or WHOLE. The first is always 1."""
    left = left_over(online, offline)
    if kind == USAGE:
        both = online.busy * offline.busy
        return [1.0, left, online.busy, offline.busy, both, 1 / (IDLE + online.busy)]
    often = 1 / max(LEAST_MS, online.burst_ms or 0)
    return [1.0, left, often, often * offline.busy]


class Speeds(NamedTuple):
    """offline: the speed of the offline program, of its own alone. slowdown: how many times as long
    as alone the online one's requests take."""

    offline: float
    slowdown: float


@dataclass(frozen=True)
class Weights:
    """Of each feature, for the offline program's speed and for the logarithm of the slowdown."""

    speed: Sequence[float]
    slowdown: Sequence[float]

    def of(self, numbers: Sequence[float]) -> Speeds:
        speed = sum(w * x for w, x in zip(self.speed, numbers))
        slower = sum(w * x for w, x in zip(self.slowdown, numbers))
        return Speeds(min(1.0, max(SLOWEST, speed)), math.exp(min(5.0, max(0.0, slower))))


@dataclass(frozen=True)
class Model:
    """weights: by USAGE and WHOLE. device: what it was fitted on. emulated: that is no card, so the
    figures say nothing of one."""

    weights: Mapping[str, Weights]
    device: str
    emulated: bool

    def predict(self, online: Profile, offline: Profile) -> Speeds:
        kind = USAGE if online.burst_ms is None else WHOLE
        return self.weights[kind].of(features(online, offline, kind))


def read(text: str) -> Model:
    """The model of a file such as SHIPPED. ValueError, KeyError, TypeError: it is no such."""
    found: Mapping[str, Any] = json.loads(text)
    weights = {
        kind: Weights(tuple(each["speed"]), tuple(each["slowdown"]))
        for kind, each in found["weights"].items()
    }
    return Model(weights, str(found["device"]), bool(found["emulated"]))

"""How fast tasks are that share a GPU: what the simulation takes for true.

Pairs of an online and an offline program were measured at the load that the online program had
there (pairs.json). Assumed for other loads:

- An offline task that gets all the time that the online one leaves, without a loss, has the speed
  left_over(). What was measured is less by a factor; that loss is there in proportion to the online
  task's load, up to the load at which it was measured.
- The online task's requests are slowed as measured, whatever its load is.
- A pair that was not measured has the loss and the slowdown of all that were, on average.
- The controller cuts the offline task's duty while the online one has work (control.py): both what
  the offline task gets then and what the online one is slowed by fall in proportion to it.

In `time_sharing` tasks have the driver's time slices: all that have work get the same. No loss is
assumed for switches there. An online task takes longer by the part of its time in which others have
work, and all offline tasks of a GPU get what it leaves, in proportion to what they want.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from leased.matching.model import SHIPPED, left_over
from leased.matching.profile import Profile
from tests.bench.fleet.control import settle
from tests.bench.fleet.trace import Floats, Ints

LEAST_BUSY = 0.02


@dataclass(frozen=True)
class Speeds:
    """names: of programs. profiles: of them alone. loss, slowdown: by online and offline program.
    busy: of each program alone. duty: what the controller gives the offline one; settled: how slow
    the online one is then."""

    names: tuple[str, ...]
    profiles: Mapping[str, Profile]
    loss: Floats
    slowdown: Floats
    busy: Floats
    duty: Floats
    settled: Floats

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Speeds:
        """Of what pairs.json has."""
        names = tuple(found["programs"])
        profiles = {name: Profile(**each) for name, each in found["programs"].items()}
        loss = np.full((len(names), len(names)), np.nan)
        slowdown = np.full_like(loss, np.nan)
        for online, offline, speed, slower in found["pairs"]:
            at = names.index(online), names.index(offline)
            best = left_over(profiles[online], profiles[offline])
            loss[at] = min(1.0, max(0.0, 1 - speed / max(best, speed, 0.01)))
            slowdown[at] = max(1.0, slower)
        loss[np.isnan(loss)] = np.nanmean(loss)
        slowdown[np.isnan(slowdown)] = np.nanmean(slowdown)
        busy = np.array([max(LEAST_BUSY, profiles[name].busy) for name in names])
        control = [[settle(round(float(one), 2)) for one in row] for row in slowdown]
        duty = np.array([[one.duty for one in row] for row in control])
        settled = np.array([[one.slowdown for one in row] for row in control])
        return cls(names, profiles, loss, slowdown, busy, duty, settled)

    @classmethod
    @cache
    def shipped(cls) -> Speeds:
        """Those of pairs.json. The controller is run for each pair: seconds."""
        return cls.of(json.loads(SHIPPED.read_text()))

    def number(self, name: str) -> int:
        return self.names.index(name)

    def beside(self, online: Ints, load: Floats, offline: Ints) -> tuple[Floats, Floats]:
        """Of pairs: the speed of the offline task, and how slow the online one is. online: its
        program; -1: there is none. load: the part of the time in which it has work."""
        alone = online < 0
        best = np.minimum(1.0, (1 - load) / self.busy[offline])
        known = np.minimum(1.0, load / self.busy[online])
        speed = best * (1 - self.loss[online, offline] * known)
        duty = self.duty[online, offline]
        return (
            np.where(alone, 1.0, speed * (1 - (1 - duty) * known)),
            np.where(alone, 1.0, self.settled[online, offline]),
        )

    def by_turns(self, load: Floats, wanted: Floats) -> tuple[Floats, Floats]:
        """With the driver's slices: the speed of the offline tasks of a GPU, and how slow its
        online one is. wanted: the parts of its time that the offline tasks of the GPU want, in
        sum."""
        left = np.maximum(1 - load, np.minimum(0.5, wanted))
        speed = np.minimum(1.0, left / np.maximum(wanted, 1e-9))
        return speed, 1 + np.minimum(1.0, wanted)


def seen(profile: Profile, loads: Sequence[float], memory: float) -> Profile:
    """What earlier runs have told of an online task: its program's profile, with its own load."""
    return replace(profile, busy=min(1.0, float(np.mean(loads))), memory=round(memory))

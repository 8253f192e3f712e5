"""Jobs in simulated time, and what part of a device's time each has had in any window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.core.scenario import Job, Poke, Scenario
from tests.core.silent import Silent
from tests.core.world import S, World

ALWAYS = 10**9  # ms
ERROR = 0.02
WINDOW_S = 10


class Watched(World):
    """had: of each job, by second from the start on, the device time that it has had so far."""

    def __init__(self, jobs: Sequence[Job], seconds: int, pokes: Sequence[Poke] = (), **other: Any):
        devices = 1 + max(max(job.gang) for job in jobs)
        scenario = Scenario(devices, seconds, tuple(jobs), tuple(pokes))
        super().__init__(scenario, most_events=10**9, judge=Silent, **other)
        self.had: list[dict[int, int]] = []
        for second in range(seconds + 1):
            self.timeline.at(second * S, self.note)
        self.run()

    def note(self) -> None:
        self.had.append(
            {
                tenant: max(used.lease_ns for used in self.a.usage(tenant, self.now).values())
                for tenant in self.a.tenants
            }
        )

    def finish(self) -> None:
        pass

    def got(self, begin: int, end: int) -> dict[int, float]:
        """The part of the device's time that each had between these seconds."""
        span = (end - begin) * S
        return {
            tenant: (had - self.had[begin].get(tenant, 0)) / span
            for tenant, had in self.had[end].items()
        }

    def check(
        self, begin: int, end: int, wanted: Mapping[int, float], error: float = ERROR
    ) -> None:
        """In each window between these seconds each job has what it should have."""
        for first in range(begin, end - WINDOW_S + 1):
            got = self.got(first, first + WINDOW_S)
            assert got == pytest.approx(wanted, abs=error), f"from second {first} on"


def greedy(request: float = 0.0, limit: float = 1.0, **other: Any) -> Job:
    usual: dict[str, Any] = {"busy": ALWAYS, "pause": 1, "quantum": 100, "drain": 1}
    return Job((0,), request=request, limit=limit, **(usual | other))


def shares(*requests: float, **other: Any) -> list[Job]:
    return [greedy(request, **other) for request in requests]

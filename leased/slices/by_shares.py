"""How jobs run of which one or more have shares.

A job that wants its part of the device has a window: a part of each period in which only its work
runs, and that long. So it has its part whatever its work is: kernels that wait in line, small ones,
or each submitted when the one before has ended. A time slice would be the most that it may have.
Nobody has to measure how much the device did for whom, which NVML does not know.

A job that wants less than its part (demand.py) runs whenever it has work, and the windows divide
the rest of the time. Where there is only one such job, its bursts are not interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.slices.demand import Demand
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US, Choice, Seen

CONTENT = "it uses less than its part of the GPU, and wants no more"
LEAST = 0.01  # of the time: the shortest window
PERIOD_MS = 200  # shorter ones cost more stops
TINY = 1e-9


@dataclass
class ByShares:
    """Of one device."""

    demands: dict[int, Demand] = field(default_factory=dict)

    def choose(self, now: int, jobs: Mapping[int, Seen]) -> dict[int, Choice]:
        """What these jobs have from now on. Windows stand in the order of the jobs. now: ns."""
        self.demands = {job: self.demands.get(job, Demand()) for job in jobs}
        uses = {job: demand.uses for job, demand in self.demands.items() if demand.content}
        for job, seen in jobs.items():
            if seen.wanted is not None:
                others = {other: used for other, used in uses.items() if other != job}
                self.demands[job].look(now, seen.wanted, targets(jobs, others)[job])
        return self._chosen(jobs)

    def _chosen(self, jobs: Mapping[int, Seen]) -> dict[int, Choice]:
        uses = {job: demand.uses for job, demand in self.demands.items() if demand.content}
        us = LONG_US if len(uses) == 1 and len(jobs) > 1 else AS_MADE
        parts = {job: part for job, part in targets(jobs, uses).items() if job not in uses}
        left = max(LEAST, 1.0 - sum(uses.values()))
        windows = _windows({job: part / left for job, part in parts.items()})
        chosen = {job: Choice(us, ALWAYS, CONTENT) for job in uses}
        for job, (begins, duty) in windows.items():
            # It gives way at once to who runs at any time, unless its processes would take turns.
            short = uses and jobs[job].processes == 1
            why = f"it is to have {parts[job]:.2f} of the GPU"
            window = (begins, PERIOD_MS) if duty < ALWAYS else ()
            chosen[job] = Choice(SHORT_US if short else AS_MADE, duty, why, *window)
        return chosen


def _windows(parts: Mapping[int, float]) -> dict[int, tuple[int, int]]:
    """By job, when its window begins and how long it is, per mille: one after the other. parts: of
    the period."""
    wide = {job: max(part, LEAST) for job, part in parts.items()}
    scale = ALWAYS / max(1.0, sum(wide.values()))
    found, at = {}, 0.0
    for job, part in wide.items():
        begins, at = at, at + part * scale
        found[job] = round(begins), round(at) - round(begins)
    return found


def targets(jobs: Mapping[int, Seen], wants: Mapping[int, float]) -> dict[int, float]:
    """The part of the device's time that each job is to have. wants: of jobs that want no more than
    this, what they use.

    The others have what they request, and what is left over is divided evenly among them; none has
    more than its limit. What cannot be given is divided in proportion.
    """
    found = {job: min(used, jobs[job].limit) for job, used in wants.items()}
    hungry = {job: seen for job, seen in jobs.items() if job not in wants}
    left = max(0.0, 1 - sum(found.values()))
    requested = sum(seen.request for seen in hungry.values())
    scale = min(1.0, left / requested) if requested else 1.0
    had = {job: min(seen.request, seen.limit) * scale for job, seen in hungry.items()}
    while (rest := left - sum(had.values())) > TINY:
        below = [job for job in had if had[job] < hungry[job].limit - TINY]
        if not below:
            break
        for job in below:
            had[job] = min(hungry[job].limit, had[job] + rest / len(below))
    return found | had

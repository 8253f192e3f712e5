"""The part of a device's time that each of its jobs is to have, by what they request."""

from __future__ import annotations

from collections.abc import Mapping

from leased.slices.job import Seen

TINY = 1e-9


def targets(jobs: Mapping[int, Seen], wants: Mapping[int, float]) -> dict[int, float]:
    """By job. wants: of jobs that want no more than this, what they use.

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

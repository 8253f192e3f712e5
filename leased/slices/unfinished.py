"""What part of a device's time each job has, by how much of the time it has unfinished work.

Each process knows when it has work that is not finished, whether the device does it or that of
others meanwhile. NVML does not know whose work the device does where several have some: it divides
a sample evenly among those that it has seen at all, or gives it to one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

SATURATES = 0.85  # of the time with unfinished work: the job always has work


def parts(
    unfinished: Mapping[int, float], processes: Mapping[int, int], favored: Collection[int]
) -> dict[int, float]:
    """By job, the part of the device's time that it has. unfinished: of the time, 0 to 1. favored:
    jobs whose bursts nobody interrupts.

    A burst shares the device with all jobs that always have work, unless the job is favored, so the
    device does that much less for it. Who always has work has what is left, by its processes.
    """
    saturating = [job for job, part in unfinished.items() if part >= SATURATES]
    groups = sum(max(1, processes[job]) for job in saturating)
    found = {
        job: part / (1 if job in favored else 1 + groups)
        for job, part in unfinished.items()
        if part < SATURATES
    }
    left = max(0.0, 1.0 - sum(found.values()))
    found |= {job: left * max(1, processes[job]) / groups for job in saturating}
    return found

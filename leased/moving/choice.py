"""Which job should move to a GPU that is idle, if any: pure.

A move is worth it where jobs take turns on one GPU since their memory does not fit together, while
another GPU of its kind has room for one of them. A move costs what its memory takes over the link
and what the driver takes; it saves turns of which only one job's worth is used. So the jobs must
have taken turns for some times as long as a move takes: jobs that will soon end, or that were
about to fit, are left alone. A job that was moved rests, so none goes to and fro.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

DRIVER_S = 1.3  # the driver's part of a move: 0.8 s for a small program on an H200, parked
WORTH = 5  # jobs have taken turns for so many times as long as a move takes
REST_NS = 600_000_000_000  # of a job that was moved, or that could not be


@dataclass(frozen=True)
class DeviceSeen:
    """kind: devices of one kind take each other's jobs. room: bytes for jobs' memory. jobs: by
    job that has memory there, the bytes of it. resident: what of it is on the device now and would
    have to leave first. turns: of them those that hold the device or wait
    for it, if they take turns since they do not fit together. turns_ns: for how long they have.
    link: bytes a second."""

    uuid: str
    kind: str
    room: int
    jobs: Mapping[int, int]
    resident: Mapping[int, int]
    turns: frozenset[int] = frozenset()
    turns_ns: int = 0
    link: float = 1.0


class Choice(NamedTuple):
    """The job, and the device to which it should move."""

    job: int
    to: str


def choose(devices: Iterable[DeviceSeen], rested: Mapping[int, int]) -> Choice | None:
    """rested: for how many ns jobs have rested that were moved, or were refused. None: no move is
    worth it."""
    seen = list(devices)
    for device in seen:
        if len(device.turns) < 2:
            continue
        for job in sorted(device.turns, key=lambda job: (cost_ns(job, device), job)):
            if rested.get(job, REST_NS) < REST_NS:
                continue
            if device.turns_ns < WORTH * cost_ns(job, device):
                continue
            target = _roomiest(device.jobs.get(job, 0), device, seen)
            if target is not None:
                return Choice(job, target)
    return None


def cost_ns(job: int, device: DeviceSeen) -> int:
    """What it takes to move a job: what of its memory is there leaves, and all of it comes in."""
    size = device.resident.get(job, 0) + device.jobs.get(job, 0)
    return int((DRIVER_S + size / device.link) * 1e9)


def _roomiest(size: int, device: DeviceSeen, seen: Iterable[DeviceSeen]) -> str | None:
    """The device of the same kind with the most room left, if the job fits beside what is there."""
    left = {
        other.uuid: other.room - sum(other.jobs.values())
        for other in seen
        if other.uuid != device.uuid and other.kind == device.kind and not other.turns
    }
    fits = [uuid for uuid, room in left.items() if room >= size]
    return max(fits, key=lambda uuid: (left[uuid], uuid), default=None)

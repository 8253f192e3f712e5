"""Which job should move to a GPU that is idle, if any: pure.

A move is worth it where jobs take turns on one GPU since their memory does not fit together, while
another GPU of its kind has room for one of them. A move costs what its memory takes over the link
and what the driver takes; it saves, of the time in which they take turns, the part in which nobody
uses the other GPU. So that has to have been some times as long as a move takes: jobs that will soon
end, or that were about to fit, are left alone. A job that was moved rests, so none goes to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

DRIVER_S = 1.3  # the driver's part of a move: 0.8 s for a small program on an H200, parked
BUSY = 0.9  # a device that is busy for such a part of the time is no idle one
WORTH = 5  # jobs have taken turns for so many times as long as a move takes
REST_NS = 600_000_000_000  # of a job that was moved, or that stayed


@dataclass(frozen=True)
class DeviceSeen:
    """kind: devices of one kind take each other's jobs. room: bytes for jobs' memory. jobs: by
    job that has memory there, the bytes of it. resident: what of it is on the device now and would
    have to leave first. turns: of them those that hold the device or wait
    for it, if they take turns since they do not fit together. turns_ns: for how long they have.
    link: bytes a second. still: jobs whose work stands still in mid-kernel, which need a turn to
    finish it before they can move."""

    uuid: str
    kind: str
    room: int
    jobs: Mapping[int, int]
    resident: Mapping[int, int]
    turns: frozenset[int] = frozenset()
    turns_ns: int = 0
    link: float = 1.0
    busy: float = 0.0
    still: frozenset[int] = frozenset()


class Choice(NamedTuple):
    """The job, and the device to which it should move."""

    job: int
    to: str


def choose(
    devices: Iterable[DeviceSeen],
    rested: Mapping[int, int],
    may: Callable[[Choice], bool] = lambda _: True,
) -> Choice | None:
    """rested: for how many ns jobs have rested that were moved, or stayed. may: whether nothing
    else hinders a move. None: no move is worth it."""
    seen = list(devices)
    found = (_chosen(device, seen, rested, may) for device in seen if len(device.turns) > 1)
    return next((choice for choice in found if choice is not None), None)


def _chosen(
    device: DeviceSeen,
    seen: Iterable[DeviceSeen],
    rested: Mapping[int, int],
    may: Callable[[Choice], bool],
) -> Choice | None:
    """Of the jobs that take turns on one device: rather one without which the others fit, for
    which it is worth to wait, then the one that costs least."""
    for more, cost, job in sorted(_order(job, device) for job in device.turns):
        if rested.get(job, REST_NS) < REST_NS:
            continue
        for busy, target in _targets(job, device, seen):
            if not may(Choice(job, target)):
                continue
            if device.turns_ns * (1 - busy) >= WORTH * cost:
                return Choice(job, target)
            if not more:
                return None
    return None


def _order(job: int, device: DeviceSeen) -> tuple[bool, int, int]:
    """Whether the others do not fit without it, what it costs, and the job."""
    left = sum(device.jobs.values()) - device.jobs.get(job, 0)
    return left > device.room, cost_ns(job, device), job


def cost_ns(job: int, device: DeviceSeen) -> int:
    """What it takes to move a job: what of its memory is there leaves, and all of it comes in. For
    a turn before that, the rest of it comes and leaves too."""
    there, size = device.resident.get(job, 0), device.jobs.get(job, 0)
    size += size + (size - there) if job in device.still else there
    return int((DRIVER_S + size / device.link) * 1e9)


def _targets(job: int, device: DeviceSeen, seen: Iterable[DeviceSeen]) -> list[tuple[float, str]]:
    """The devices of the same kind that are not always busy, and where the job fits beside what is
    there, with how busy they are: the least busy ones first, of those the one with the most room
    left."""
    size, found = device.jobs.get(job, 0), []
    for other in seen:
        if other.uuid == device.uuid or other.kind != device.kind or other.turns:
            continue
        left = other.room - sum(other.jobs.values()) - size
        if left >= 0 and other.busy < BUSY:
            found.append((round(other.busy, 1), -left, other.uuid))
    return [(busy, uuid) for busy, _, uuid in sorted(found)]

"""What a picture shows of a history: for each GPU who waited and held, handoffs, and memory.

Pure. Times are ns from the begin of the picture, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from leased.base import job_names, words
from leased.base.errors import Refused
from leased.sim.history import History, Hold, Run

WAITS, COMES, HOLDS, LEAVES, HANDOFF = "waits", "comes", "holds", "leaves", "handoff"
Series = tuple[tuple[int, int], ...]  # from when on, how many bytes


@dataclass(frozen=True)
class Span:
    """A job waits for its GPUs; memory comes for it at its grant; it computes; it leaves: it has
    been told to release and drains. A handoff: from when the one before was told to release (or
    had done so by itself and the next one had asked) until the next worked."""

    kind: str
    since: int
    until: int


@dataclass(frozen=True)
class Lane:
    """All runs of a job on a device. name: the job as squeue showed it."""

    job: int
    name: str
    spans: tuple[Span, ...]
    memory: Series


@dataclass(frozen=True)
class DeviceSpans:
    """index: its place among the daemon's devices. capacity: what jobs could have of it together.
    resident: what of their memory was there."""

    index: int
    uuid: str
    lanes: tuple[Lane, ...]
    handoffs: tuple[Span, ...]
    capacity: Series
    resident: Series

    @property
    def handoff_ns(self) -> int:
        return sum(handoff.until - handoff.since for handoff in self.handoffs)


@dataclass(frozen=True)
class Picture:
    """began: seconds since 1970. length: ns."""

    began: float
    length: int
    devices: tuple[DeviceSpans, ...] = ()


def picture(
    history: History, jobs: Collection[int | str] = (), since: float | None = None
) -> Picture:
    """jobs: only these, by their numbers or as squeue shows them; empty: all. since: seconds since
    1970; None: all of the record.

    Refused: nothing of that is in the record.
    """
    runs = [run for run in history.runs if not jobs or any(_means(job, run) for job in jobs)]
    names = {run.job: run.name for run in history.runs}.values()
    for job in jobs:
        if not any(_means(job, run) for run in runs):
            raise Refused(
                f"job {job} is not in the record",
                f"it has {words.named(list(names))}" if names else "it has no jobs",
            )
    begin = history.begin
    if since is not None:
        begin = max(begin, history.begin + round((since - history.written) * 1e9))
    runs = [run for run in runs if run.closed > begin]
    if not runs or begin >= history.end:
        raise Refused("no job of the record was there at that time", "choose an earlier --since")
    if since is None:
        begin = min(run.opened for run in runs)
    end = max(run.closed for run in runs)
    window = _Window(begin, end)
    devices = tuple(
        _device(history, uuid, [run for run in runs if uuid in run.gang], window)
        for uuid in history.devices
        if any(uuid in run.gang for run in runs)
    )
    began = history.written + (begin - history.begin) / 1e9
    return Picture(began, end - begin, devices)


def _means(job: int | str, run: Run) -> bool:
    return job_names.means(job, run.job, run.name)


@dataclass(frozen=True)
class _Window:
    begin: int
    end: int

    def span(self, kind: str, since: int, until: int) -> Iterator[Span]:
        """The part of the span that is in the picture."""
        since, until = max(since, self.begin), min(until, self.end)
        if until > since:
            yield Span(kind, since - self.begin, until - self.begin)

    def series(self, values: Sequence[tuple[int, int]]) -> Series:
        """The last one before the picture stands at its begin."""
        found = [(0, size) for at, size in values if at <= self.begin][-1:]
        later = [(at - self.begin, size) for at, size in values if self.begin < at < self.end]
        return tuple(found + later)


def _device(history: History, uuid: str, runs: Sequence[Run], window: _Window) -> DeviceSpans:
    return DeviceSpans(
        history.devices.index(uuid),
        uuid,
        tuple(_lane(of_job, uuid, window) for of_job in _by_job(runs)),
        tuple(_handoffs(runs, window)),
        window.series(history.rooms.get(uuid, ())),
        window.series(history.resident.get(uuid, ())),
    )


def _by_job(runs: Sequence[Run]) -> list[list[Run]]:
    """One that moves away and comes back, or is requeued, has several, one after the other."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.job, []).append(run)
    return list(found.values())


def _lane(runs: Sequence[Run], uuid: str, window: _Window) -> Lane:
    waits = [wait for run in runs for wait in run.waits]
    spans = [span for wait in waits for span in window.span(WAITS, wait.since, wait.until)]
    for hold in (hold for run in runs for hold in run.holds):
        leaves = hold.until if hold.revoked is None else max(hold.begun, hold.revoked)
        spans += window.span(COMES, hold.since, hold.begun)
        spans += window.span(HOLDS, hold.begun, leaves)
        spans += window.span(LEAVES, leaves, hold.until)
    spans.sort(key=lambda span: span.since)
    sizes = [size for run in runs for size in (*run.memory.get(uuid, ()), (run.closed, 0))]
    return Lane(runs[0].job, runs[0].name, tuple(spans), window.series(sizes))


def _handoffs(runs: Sequence[Run], window: _Window) -> Iterator[Span]:
    held = sorted(
        ((hold, run) for run in runs for hold in run.holds), key=lambda each: each[0].since
    )
    before: tuple[Hold, Run] | None = None
    for hold, run in held:
        if before is not None and before[1].job != run.job and before[0].until <= hold.since:
            last = before[0]
            asked = run.asked(hold)
            left = max(last.until, asked) if last.revoked is None else last.revoked
            yield from window.span(HANDOFF, left, hold.begun)
        if before is None or hold.until >= before[0].until:
            before = hold, run

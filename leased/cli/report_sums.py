"""What jobs had of GPUs, added up by user, account, job, device or node. Pure.

docs/accounting.md defines the sums; times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.slurm.sacct import Row
from leased.slurm.usage_record import Run
from leased.usage.usage import FIGURES, MEAN

# Figures of a record that are added up as they are: neither averages nor the most of something.
ADDED = tuple(f.key for f in FIGURES if not f.largest and f.unit != MEAN)


class Use(NamedTuple):
    """What one run of a job, or a step of it, had of one device, or of several where that is all
    that is known. step: its name; "": it is of the whole run."""

    row: Row
    node: str
    device: str  # its name, such as node1:0
    since: float
    until: float
    figures: Mapping[str, float]
    step: str = ""

    @property
    def exclusive_s(self) -> float:
        """How long it would have held a GPU of its own, in seconds: its time without the time
        that it waited for other jobs."""
        waited = self.figures.get("time_s", 0.0) - self.figures.get("wait_s", 0.0)
        return max(self.figures.get("lease_s", 0.0), waited)


@dataclass
class Sums:
    """Of some runs. spans: by device, when runs were on it."""

    name: str
    jobs: set[str] = field(default_factory=set)
    amounts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ADDED, 0))
    exclusive_s: float = 0.0
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, use: Use) -> None:
        self.jobs.add(use.row.label)
        for name in ADDED:
            self.amounts[name] += use.figures.get(name, 0)
        self.exclusive_s += use.exclusive_s
        self.spans.setdefault(use.device, []).append((use.since, use.until))

    def whole_span(self) -> tuple[float, float]:
        """From the beginning of the first run to the end of the last one."""
        spans = [span for each in self.spans.values() for span in each]
        return min(since for since, _ in spans), max(until for _, until in spans)

    @property
    def efficiency(self) -> float | None:
        """The part of the measured lease in which work was under way; None: none was measured."""
        measured = self.amounts["measured_s"]
        return self.amounts["busy_s"] / measured if measured else None

    @property
    def moved_in_bytes(self) -> float:
        return self.amounts["moved_bytes"] - self.amounts["moved_out_bytes"]

    @property
    def occupied_s(self) -> float:
        """GPU seconds in which at least one of the runs was on a device."""
        return sum(map(_covered, self.spans.values()))

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        rounded = {name: round(amount, 3) for name, amount in self.amounts.items()}
        return {
            "name": self.name,
            "jobs": len(self.jobs),
            **rounded,
            "moved_in_bytes": round(self.moved_in_bytes, 3),
            "efficiency": None if self.efficiency is None else round(self.efficiency, 4),
            "exclusive_s": round(self.exclusive_s, 3),
            "occupied_s": round(self.occupied_s, 3),
        }


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """How long the intervals are together, counted once where they overlap."""
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


KEYS: dict[str, Callable[[Use], str]] = {
    "user": lambda use: use.row.user,
    "account": lambda use: use.row.account,
    "job": lambda use: use.row.label,
    "device": lambda use: use.device,
    "node": lambda use: use.node,
    "step": lambda use: f"{use.row.label}.{use.step}" if use.step else use.row.label,
}


def uses(row: Row) -> Iterator[Use]:
    """What a run had of each device; nothing where it has no record."""
    run = row.usage
    if run is None:
        return
    span = run.since, max(run.since, run.until)
    for uuid, figures in run.gpus.items():
        # Old records have no time of their own.
        yield Use(row, *_place(row, run, uuid), *span, {"time_s": span[1] - span[0], **figures})
    # Which devices is not known: each is taken for one that nobody else was on.
    for n in range(run.cut):
        part = {name: amount / run.cut for name, amount in run.total.items()}
        yield Use(row, row.node, f"{row.node}:? ({row.label}, {n + 1})", *span, part)


def _place(row: Row, run: Run, uuid: str) -> tuple[str, str]:
    """The node of a device, and the device's name."""
    node = run.nodes.get(uuid, row.node)
    return node, f"{node}:{run.indices.get(uuid, uuid[:12])}"


def step_uses(row: Row) -> Iterator[Use]:
    """What each step of a run had of each device; the whole run's where it does not say that."""
    run = row.usage
    if run is None or not run.steps:
        yield from uses(row)
        return
    for name, step in run.steps.items():
        for uuid, figures in step.gpus.items():
            span = step.since, max(step.since, step.until)
            yield Use(row, *_place(row, run, uuid), *span, figures, name)


def summed(found: Iterable[Use], by: str) -> list[Sums]:
    """A sum for each user, account, ...; who had most of the GPUs comes first."""
    groups: dict[str, Sums] = {}
    for use in found:
        name = KEYS[by](use)
        groups.setdefault(name, Sums(name)).add(use)
    return sorted(groups.values(), key=lambda sums: (-sums.amounts["lease_s"], sums.name))


def total(found: Iterable[Use]) -> Sums:
    """The sum of all runs."""
    sums = Sums("total")
    for use in found:
        sums.add(use)
    return sums

"""What a tenant has had of a device: the one table of its figures.

A figure is one line of Usage. The store, Slurm's accounting, the answers of the daemon and the
tables of gpu-leasectl are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

NS, BYTES, COUNT = "ns", "bytes", "count"


@dataclass(frozen=True)
class Figure:
    """How one figure is shown and added up.

    name: of the field of Usage. label: the head of its column. unit: NS, BYTES or COUNT.
    largest: of several runs the largest counts, and not their sum. rare: it is left out where
    it is 0. meaning: for people who read sacct.
    """

    name: str
    label: str
    unit: str
    meaning: str
    largest: bool = False
    rare: bool = False

    @property
    def key(self) -> str:
        """Its name in Slurm's accounting and in answers, where times are seconds."""
        return self.name.removesuffix("_ns") + "_s" if self.unit == NS else self.name

    def value(self, usage: Usage) -> float | int:
        """As it stands behind its key."""
        amount: int = getattr(usage, self.name)
        return round(amount / 1e9, 3) if self.unit == NS else amount

    def together(self, one: int, other: int) -> int:
        """What two runs had together."""
        return max(one, other) if self.largest else one + other


def figure(
    label: str, unit: str, meaning: str, *, largest: bool = False, rare: bool = False
) -> int:
    """One line of Usage."""
    told = {"label": label, "unit": unit, "meaning": meaning, "largest": largest, "rare": rare}
    return field(default=0, metadata=told)


@dataclass
class Usage:
    """Of one tenant on one device."""

    lease_ns: int = figure(
        "lease",
        NS,
        "seconds the job held the GPU; time side by side is divided among those who shared it, "
        "so the leases of a GPU never add up to more than the clock",
    )
    shared_ns: int = figure("side by side", NS, "seconds it ran side by side with other jobs")
    wait_ns: int = figure("wait", NS, "seconds it waited for the GPU")
    handoffs: int = figure("handoffs", COUNT, "how often it got the GPU after another job")
    moved_bytes: int = figure(
        "moved",
        BYTES,
        "what had to move at its handoffs, as the daemon reckons it; what the driver pages on its "
        "own while jobs run side by side, as with `lock:off`, no interface tells",
    )
    peak_bytes: int = figure("peak", BYTES, "the most memory that it had at once", largest=True)
    overruns: int = figure("overruns", COUNT, "how often it did not give the GPU back in time")
    strays: int = figure(
        "strays",
        COUNT,
        "processes of it that used the GPU without a lease; left out where there were none",
        rare=True,
    )


FIGURES = tuple(Figure(line.name, **line.metadata) for line in fields(Usage))

"""What a tenant has had of a device: the one table of its figures.

A figure is one line of Usage. The store, Slurm's accounting, the answers of the daemon and the
tables of gpu-leasectl are made from it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

NS, BYTES, COUNT, MEAN, ENERGY = "ns", "bytes", "count", "mean", "energy"
KIB_MS = 1024 * 1_000_000  # bytes times ns in a KiB times a ms


@dataclass(frozen=True)
class Figure:
    """How one figure is shown and added up.

    name: of the field of Usage. label: the head of its column. unit: NS, BYTES, COUNT, MEAN (KiB
    times ms, shown as bytes on average over the job's time) or ENERGY (mJ).
    largest: of several runs the largest counts, and not their sum. rare: it is left out where
    it is 0. meaning: for people who read sacct; docs/accounting.md says how it is measured.
    """

    label: str
    unit: str
    largest: bool = False
    rare: bool = False
    meaning: str = ""
    name: str = ""

    def means(self, meaning: str) -> int:
        """One line of Usage."""
        return field(default=0, metadata={"figure": replace(self, meaning=meaning)})

    @property
    def key(self) -> str:
        """Its name in Slurm's accounting and in answers: times are seconds, energy joules."""
        if self.unit == NS:
            return self.name.removesuffix("_ns") + "_s"
        if self.unit == MEAN:
            return f"mean_{self.name.removesuffix('_kib_ms')}_bytes"
        return self.name.removesuffix("_mj") + "_j" if self.unit == ENERGY else self.name

    def value(self, usage: Usage) -> float | int:
        """The value that stands behind its key."""
        amount: int = getattr(usage, self.name)
        if self.unit == NS:
            return round(amount / 1e9, 3)
        if self.unit == MEAN:
            return amount * KIB_MS // usage.time_ns if usage.time_ns else 0
        return round(amount / 1e3, 1) if self.unit == ENERGY else amount

    def together(self, values: Sequence[int]) -> int:
        """The figure of several runs taken together."""
        return max(values, default=0) if self.largest else sum(values)


@dataclass
class Usage:
    """The usage of one device by one tenant."""

    time_ns: int = Figure("time", NS).means("seconds the job was on the node with this GPU")
    lease_ns: int = Figure("lease", NS).means(
        "seconds the job held the GPU; time side by side is divided among those who shared it, "
        "so the leases of a GPU never add up to more than the clock"
    )
    shared_ns: int = Figure("side by side", NS).means("seconds it ran side by side with other jobs")
    wait_ns: int = Figure("wait", NS).means("seconds it waited for the GPU")
    measured_ns: int = Figure("measured", NS).means(
        "seconds of its lease in which NVML said how busy the GPU was"
    )
    busy_ns: int = Figure("busy", NS).means("seconds of those in which work was under way")
    idle_resident_ns: int = Figure("idle", NS).means(
        "seconds some of its memory was on the GPU while it neither waited nor had work under way"
    )
    handoffs: int = Figure("handoffs", COUNT).means("how often it got the GPU after another job")
    moved_bytes: int = Figure("moved", BYTES).means(
        "what had to move at its handoffs, as the daemon reckons it, without what left unchanged "
        "(`clean_bytes`); what the driver pages on its own while jobs run side by side, as with "
        "`lock:off`, no interface tells"
    )
    moved_out_bytes: int = Figure("moved out", BYTES).means(
        "what of `moved_bytes` left the GPU: its own memory, or that of others to make room for "
        "it; the rest is what came in"
    )
    clean_bytes: int = Figure("left clean", BYTES, rare=True).means(
        "what of its memory left the GPU without being copied, as nothing had changed it since it "
        "was last copied; left out where there was none"
    )
    peak_bytes: int = Figure("peak memory", BYTES, largest=True).means(
        "the most memory that it had at once"
    )
    peak_resident_bytes: int = Figure("peak resident", BYTES, largest=True).means(
        "the most of it that was on the GPU at once"
    )
    wanted_kib_ms: int = Figure("mean memory", MEAN).means(
        "the memory that it had, on average over its time"
    )
    resident_kib_ms: int = Figure("mean resident", MEAN).means(
        "what of it was on the GPU, on average over its time"
    )
    overruns: int = Figure("overruns", COUNT).means(
        "how often it did not give the GPU back in time"
    )
    strays: int = Figure("strays", COUNT, rare=True).means(
        "processes of it that used the GPU without a lease; left out where there were none"
    )
    energy_mj: int = Figure("energy", ENERGY, rare=True).means(
        "joules that the GPU took meanwhile, its part of them; left out where NVML does not say"
    )

    def amounts(self) -> dict[str, int]:
        """By name, all figures."""
        return dict(zip(NAMES, _AMOUNTS(self)))

    def copy(self) -> Usage:
        return Usage(*_AMOUNTS(self))

    def move(self, into: int, out: int) -> None:
        """So many bytes move to the device and from it."""
        self.moved_bytes += into + out
        self.moved_out_bytes += out

    def take_back(self, out: int) -> None:
        """So many bytes that were counted as moved from the device have not moved."""
        self.moved_bytes = max(0, self.moved_bytes - out)
        self.moved_out_bytes = max(0, self.moved_out_bytes - out)


FIGURES = tuple(replace(line.metadata["figure"], name=line.name) for line in fields(Usage))
NAMES = tuple(figure.name for figure in FIGURES)
_AMOUNTS = operator.attrgetter(*NAMES)


def summed(usages: Iterable[Usage]) -> Usage:
    """Several usages taken together: of runs of one device, or of the devices of one run."""
    found = list(usages)
    values = {f.name: f.together([getattr(one, f.name) for one in found]) for f in FIGURES}
    return Usage(**values)


def together(*runs: Mapping[str, Usage]) -> dict[str, Usage]:
    """The usage of several stretches of time taken together, by device."""
    devices = dict.fromkeys(uuid for run in runs for uuid in run)
    return {uuid: summed(run[uuid] for run in runs if uuid in run) for uuid in devices}


def figures(usage: Usage, *, zeros: bool = True) -> dict[str, float | int]:
    """The figures as answers and records have them, by their keys: seconds, bytes and counts. Rare
    ones are left out where they are 0; without `zeros` all are."""
    values = [(figure, figure.value(usage)) for figure in FIGURES]
    return {one.key: value for one, value in values if value or (zeros and not one.rare)}

"""Every metric of a job and of a device, one row each: its name, its meaning, where its value is.

docs/metrics.md has a row for each; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from leased.api.answers import Device, Figures, Mps, Slices, Tenant

PREFIX = "gpu_lease_"
COUNTER, GAUGE = "counter", "gauge"
UNITS = ("seconds", "bytes", "ratio")
OF_DEVICE = ("gpu", "uuid")
OF_JOB = ("job_id", "user", *OF_DEVICE)
MODES = ("shared", "exclusive", "draining", "drained", "faulty")
HEALTHS = ("init", "healthy", "unhealthy", "overlimit", "disabled")
DIRECTIONS = ("in", "out")  # to the GPU and from it
STATES = ("holds", "waits", "parked", "idle")

T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """A metric. name: without prefix and without the _total of a counter; it ends with the unit.

    value: computes it from the daemon's answer; None: the answer does not have it. label, what: one
    more label than others of its kind have, and its value.
    """

    name: str
    type: str
    value: Callable[[T], float | None]
    label: str = ""
    what: str = ""
    help: str = ""

    def means(self, text: str) -> Row[T]:
        return replace(self, help=text)

    @property
    def family(self) -> str:
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        return next((unit for unit in UNITS if self.name.endswith(unit)), "")

    @property
    def own(self) -> tuple[str, str]:
        """What tells it from all other rows."""
        return self.name, self.what


@dataclass(frozen=True)
class JobDevice:
    """One device of a job, as status has them."""

    job: Tenant
    uuid: str

    @property
    def figures(self) -> Figures | None:
        return self.job["gpus"].get(self.uuid)

    @property
    def slices(self) -> Slices | None:
        """None: an older daemon does not say it."""
        return self.job.get("slices", {}).get(self.uuid)


Counted = Callable[[Figures], float]


def _figure(key: str) -> Counted:
    """A figure of usage; the daemon may leave out one that is 0."""
    return lambda figures: float(figures.get(key, 0))


def _moved(direction: str) -> Counted:
    """Bytes to the GPU or from it."""
    both, out = _figure("moved_bytes"), _figure("moved_out_bytes")
    return out if direction == "out" else lambda figures: both(figures) - out(figures)


class Total(NamedTuple):
    """A figure of jobs, and of all jobs of a GPU together. direction: of its bytes."""

    name: str
    counted: Counted
    direction: str = ""

    def means(self, of_job: str, of_device: str) -> tuple[Row[JobDevice], Row[Device]]:
        """What is said of a job, and of a GPU. A GPU's is none where an older daemon does not say
        it."""
        label = ("direction", self.direction) if self.direction else ("", "")

        def job(one: JobDevice) -> float | None:
            return None if one.figures is None else self.counted(one.figures)

        def device(one: Device) -> float | None:
            return self.counted(one["total"]) if "total" in one else None

        row = Row(f"device_{self.name}", COUNTER, device, *label, of_device)
        return Row(self.name, COUNTER, job, *label, of_job), row


TOTALS = (
    Total("held_seconds", _figure("lease_s")).means(
        "Seconds the job held the GPU; time side by side is divided among those who shared it.",
        "Seconds in which somebody held the GPU.",
    ),
    Total("shared_seconds", _figure("shared_s")).means(
        "Seconds the job held the GPU while another job held it too, not divided.",
        "Seconds that jobs held the GPU beside others, the sum of what each has.",
    ),
    Total("wait_seconds", _figure("wait_s")).means(
        "Seconds the job waited for the GPU.",
        "Seconds that jobs waited for the GPU, the sum of what each has.",
    ),
    Total("busy_seconds", _figure("busy_s")).means(
        "Seconds of the job's lease in which work was under way, as NVML says.",
        "Seconds in which somebody held the GPU and work was under way, as NVML says.",
    ),
    Total("handoffs", _figure("handoffs")).means(
        "How often the job got the GPU after another job.",
        "How often the GPU went from one job to the next.",
    ),
    *(
        Total("moved_bytes", _moved(direction), direction).means(
            "Bytes that had to move at the job's handoffs, to the GPU (in) and from it (out).",
            "Bytes that had to move at handoffs, to the GPU (in) and from it (out).",
        )
        for direction in DIRECTIONS
    ),
    Total("clean_bytes", _figure("clean_bytes")).means(
        "Bytes of the job that left the GPU without being copied, as nothing had changed them.",
        "Bytes that left the GPU without being copied, as nothing had changed them.",
    ),
    Total("overruns", _figure("overruns")).means(
        "How often the job did not give the GPU back in time.",
        "How often a job did not give the GPU back in time.",
    ),
    Total("strays", _figure("strays")).means(
        "Processes of the job that used the GPU without a lease.",
        "Processes of jobs that used the GPU without a lease.",
    ),
)


def _job(name: str, value: Callable[[JobDevice], float | None]) -> Row[JobDevice]:
    return Row(name, GAUGE, value)


JOBS: tuple[Row[JobDevice], ...] = (
    *(of_job for of_job, _ in TOTALS),
    _job("resident_bytes", lambda one: one.job["resident_bytes"].get(one.uuid)).means(
        "Bytes of the job that are on the GPU and could be moved."
    ),
    _job("slice_seconds", lambda one: one.slices and (one.slices["slice_s"] or 0.0)).means(
        "The time slice that was set for the job on the GPU; 0: the driver's own."
    ),
    _job("duty_ratio", lambda one: one.slices and one.slices["duty"]).means(
        "In which part of the time the job's work may run on the GPU."
    ),
)


def _device(
    name: str, value: Callable[[Device], float | None], label: str = "", what: str = ""
) -> Row[Device]:
    return Row(f"device_{name}", GAUGE, value, label, what)


def _busy(device: Device) -> float | None:
    percent = device["busy_percent"]
    return None if percent is None else percent / 100


def _mode(word: str) -> Row[Device]:
    return _device("mode", lambda d: float(d["mode"] == word), "mode", word).means(
        "1 for how the GPU is used now, 0 for the other modes."
    )


def _health(word: str) -> Row[Device]:
    def value(device: Device) -> float | None:
        return (found := device.get("offline_health")) and float(found["state"] == word)

    return _device("offline_health", value, "state", word).means(
        "1 for how well the GPU is for offline jobs now, 0 for the other states."
    )


def _of_mps(name: str, value: Callable[[Mps], float]) -> Row[Device]:
    return Row(f"device_{name}", COUNTER, lambda d: (mps := d.get("mps")) and value(mps))


DEVICES: tuple[Row[Device], ...] = (
    _device("memory_bytes", lambda d: d["memory_bytes"]).means("Memory of the GPU."),
    _device("usable_bytes", lambda d: d["usable_bytes"]).means(
        "What jobs' allocations can have of the GPU's memory together."
    ),
    _device("wanted_bytes", lambda d: d["tenant_bytes"]).means(
        "What all jobs of the GPU have allocated, on it or not."
    ),
    _device("resident_bytes", lambda d: d["resident_bytes"]).means(
        "What of that is on the GPU, as modelled."
    ),
    _device("holders", lambda d: len(d["holders"])).means("Jobs that hold the GPU."),
    _device("queue_length", lambda d: len(d["waiting"])).means("Jobs that wait for the GPU."),
    _device("busy_ratio", _busy).means("How busy the GPU was at the last look, as NVML says."),
    _device("faulty", lambda d: float(d["fault"] is not None)).means(
        "1: the GPU takes no new jobs, as something is wrong with it; 0: it is in order."
    ),
    *map(_mode, MODES),
    _of_mps("mps_faults", lambda mps: mps["faults"]).means(
        "How often a fault of one process has ended the work of all on the GPU under MPS."
    ),
    _of_mps("mps_ends", lambda mps: mps["ended"]).means(
        "How often MPS of the GPU has ended by itself and was started again."
    ),
    _device("online_slowdown_ratio", lambda d: d.get("online_slowdown")).means(
        "By which part the work of online jobs takes longer than alone."
    ),
    *map(_health, HEALTHS),
    *(of_device for _, of_device in TOTALS),
)

HANDOFF_SECONDS = "handoff_seconds"
ABOUT_HANDOFFS = (
    "From when a holder was told to give the GPU up, or did so by itself, or from the request "
    "that came later, until the next one could begin to work."
)

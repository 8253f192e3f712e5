"""Every metric of a job and of a device, one row each: its name, its meaning, where its value is.

docs/metrics.md has a row for each; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from leased.api.answers import Device, Figures, Slices, Tenant

PREFIX = "gpu_lease_"
COUNTER, GAUGE = "counter", "gauge"
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
    unit: str
    help: str
    value: Callable[[T], float | None]
    label: str = ""
    what: str = ""

    @property
    def family(self) -> str:
        return PREFIX + self.name

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


# Name, unit, figure, and what is said of a job and of all jobs of a GPU.
COUNTED: tuple[tuple[str, str, Counted, str, str, str], ...] = (
    (
        *("held_seconds", "seconds", _figure("lease_s")),
        "Seconds the job held the GPU; time side by side is divided among those who shared it.",
        *("Seconds in which somebody held the GPU.", ""),
    ),
    (
        *("shared_seconds", "seconds", _figure("shared_s")),
        "Seconds the job held the GPU while another job held it too, not divided.",
        *("Seconds that jobs held the GPU beside others, the sum of what each has.", ""),
    ),
    (
        *("wait_seconds", "seconds", _figure("wait_s")),
        "Seconds the job waited for the GPU.",
        *("Seconds that jobs waited for the GPU, the sum of what each has.", ""),
    ),
    (
        *("busy_seconds", "seconds", _figure("busy_s")),
        "Seconds of the job's lease in which work was under way, as NVML says.",
        *("Seconds in which somebody held the GPU and work was under way, as NVML says.", ""),
    ),
    (
        *("handoffs", "", _figure("handoffs")),
        "How often the job got the GPU after another job.",
        *("How often the GPU went from one job to the next.", ""),
    ),
    *(
        (
            *("moved_bytes", "bytes", _moved(direction)),
            "Bytes that had to move at the job's handoffs, to the GPU (in) and from it (out).",
            "Bytes that had to move at handoffs, to the GPU (in) and from it (out).",
            direction,
        )
        for direction in DIRECTIONS
    ),
    (
        *("clean_bytes", "bytes", _figure("clean_bytes")),
        "Bytes of the job that left the GPU without being copied, as nothing had changed them.",
        *("Bytes that left the GPU without being copied, as nothing had changed them.", ""),
    ),
    (
        *("overruns", "", _figure("overruns")),
        "How often the job did not give the GPU back in time.",
        *("How often a job did not give the GPU back in time.", ""),
    ),
    (
        *("strays", "", _figure("strays")),
        "Processes of the job that used the GPU without a lease.",
        *("Processes of jobs that used the GPU without a lease.", ""),
    ),
)


def _of_job(counted: Counted) -> Callable[[JobDevice], float | None]:
    return lambda one: None if one.figures is None else counted(one.figures)


def _of_device(counted: Counted) -> Callable[[Device], float | None]:
    """None: an older daemon does not say it."""
    return lambda device: counted(device["total"]) if "total" in device else None


def _label(what: str) -> tuple[str, str]:
    return ("direction", what) if what else ("", "")


JOBS: tuple[Row[JobDevice], ...] = (
    *(
        Row(name, COUNTER, unit, of_job, _of_job(counted), *_label(what))
        for name, unit, counted, of_job, _, what in COUNTED
    ),
    Row(
        "resident_bytes",
        GAUGE,
        "bytes",
        "Bytes of the job that are on the GPU and could be moved.",
        lambda one: one.job["resident_bytes"].get(one.uuid),
    ),
    Row(
        "slice_seconds",
        GAUGE,
        "seconds",
        "The time slice that was set for the job on the GPU; 0: the driver's own.",
        lambda one: None if one.slices is None else one.slices["slice_s"] or 0.0,
    ),
    Row(
        "duty_ratio",
        GAUGE,
        "ratio",
        "In which part of the time the job's work may run on the GPU.",
        lambda one: None if one.slices is None else one.slices["duty"],
    ),
)


def _device(
    name: str, unit: str, meaning: str, value: Callable[[Device], float | None]
) -> Row[Device]:
    return Row("device_" + name, GAUGE, unit, meaning, value)


def _busy(device: Device) -> float | None:
    percent = device["busy_percent"]
    return None if percent is None else percent / 100


def _mode(word: str) -> Row[Device]:
    return Row(
        *("device_mode", GAUGE, "", "1 for how the GPU is used now, 0 for the other modes."),
        lambda device: float(device["mode"] == word),
        *("mode", word),
    )


def _health(word: str) -> Row[Device]:
    return Row(
        *("device_offline_health", GAUGE, ""),
        "1 for how well the GPU is for offline jobs now, 0 for the other states.",
        lambda device: (found := device.get("offline_health")) and float(found["state"] == word),
        *("state", word),
    )


DEVICES: tuple[Row[Device], ...] = (
    _device("memory_bytes", "bytes", "Memory of the GPU.", lambda d: d["memory_bytes"]),
    _device(
        "usable_bytes",
        "bytes",
        "What jobs' allocations can have of the GPU's memory together.",
        lambda d: d["usable_bytes"],
    ),
    _device(
        "wanted_bytes",
        "bytes",
        "What all jobs of the GPU have allocated, on it or not.",
        lambda d: d["tenant_bytes"],
    ),
    _device(
        "resident_bytes",
        "bytes",
        "What of that is on the GPU, as modelled.",
        lambda d: d["resident_bytes"],
    ),
    _device("holders", "", "Jobs that hold the GPU.", lambda d: len(d["holders"])),
    _device("queue_length", "", "Jobs that wait for the GPU.", lambda d: len(d["waiting"])),
    _device("busy_ratio", "ratio", "How busy the GPU was at the last look, as NVML says.", _busy),
    _device(
        "faulty",
        "",
        "1: the GPU takes no new jobs, as something is wrong with it; 0: it is in order.",
        lambda d: float(d["fault"] is not None),
    ),
    *map(_mode, MODES),
    Row(
        *("device_mps_faults", COUNTER, ""),
        "How often a fault of one process has ended the work of all on the GPU under MPS.",
        lambda device: (mps := device.get("mps")) and float(mps["faults"]),
    ),
    Row(
        *("device_mps_ends", COUNTER, ""),
        "How often MPS of the GPU has ended by itself and was started again.",
        lambda device: (mps := device.get("mps")) and float(mps["ended"]),
    ),
    _device(
        "online_slowdown_ratio",
        "ratio",
        "By which part the work of online jobs takes longer than alone.",
        lambda d: d.get("online_slowdown"),
    ),
    *map(_health, HEALTHS),
    *(
        Row(f"device_{name}", COUNTER, unit, of_device, _of_device(counted), *_label(what))
        for name, unit, counted, _, of_device, what in COUNTED
    ),
)

HANDOFF_SECONDS = "handoff_seconds"
ABOUT_HANDOFFS = (
    "From when a holder was told to give the GPU up, or did so by itself, or from the request "
    "that came later, until the next one could begin to work."
)

"""Every metric of a job and of a device, one row each: its name, its meaning, where its value is.

docs/metrics.md has a row for each; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from leased.api.answers import Device, Tenant

PREFIX = "gpu_lease_"
COUNTER, GAUGE = "counter", "gauge"
OF_DEVICE = ("gpu", "uuid")
OF_JOB = ("job_id", "user", *OF_DEVICE)
MODES = ("shared", "exclusive", "draining", "drained", "faulty")
STATES = ("holds", "waits", "parked", "idle")

T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """A metric. name: without prefix and without the _total of a counter; it ends with the unit.

    value: of what the daemon says; None: it does not say it of this one. labels, what: a label
    more than those of its kind, and its value.
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


@dataclass(frozen=True)
class JobDevice:
    """One device of a job, as status has them."""

    job: Tenant
    uuid: str

    def figure(self, key: str) -> float | None:
        """A figure of usage; 0 of one that is left out where it is nothing."""
        figures = self.job["gpus"].get(self.uuid)
        return None if figures is None else float(figures.get(key, 0))


def _job(name: str, unit: str, key: str, meaning: str) -> Row[JobDevice]:
    """A counter that is a figure of usage."""
    return Row(name, COUNTER, unit, meaning, lambda one: one.figure(key))


JOBS: tuple[Row[JobDevice], ...] = (
    _job(
        "held_seconds",
        "seconds",
        "lease_s",
        "Seconds the job held the GPU; time side by side is divided among those who shared it.",
    ),
    _job(
        "shared_seconds",
        "seconds",
        "shared_s",
        "Seconds the job held the GPU while another job held it too, not divided.",
    ),
    _job("wait_seconds", "seconds", "wait_s", "Seconds the job waited for the GPU."),
    _job(
        "busy_seconds",
        "seconds",
        "busy_s",
        "Seconds of the job's lease in which work was under way, as NVML says.",
    ),
    _job("handoffs", "", "handoffs", "How often the job got the GPU after another job."),
    _job(
        "moved_bytes",
        "bytes",
        "moved_bytes",
        "Bytes that had to move at the job's handoffs.",
    ),
    _job(
        "clean_bytes",
        "bytes",
        "clean_bytes",
        "Bytes of the job that left the GPU without being copied, as nothing had changed them.",
    ),
    _job("overruns", "", "overruns", "How often the job did not give the GPU back in time."),
    _job("strays", "", "strays", "Processes of the job that used the GPU without a lease."),
    Row(
        "resident_bytes",
        GAUGE,
        "bytes",
        "Bytes of the job that are on the GPU and could be moved.",
        lambda one: one.job["resident_bytes"].get(one.uuid),
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
)

"""Reads the traces."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NODES, TASKS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
DUTY, MEMORY = "pod_gpu_duty_cycle_anon", "pod_gpu_memory_used_bytes_anon"
FROM = (
    "https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023 and cluster-trace-v2026-GenAI"
)
DAY_S = 86_400
STEP_S = 60
STEPS = DAY_S // STEP_S
ONLINE, OFFLINE = "LS", "BE"
LEAST_SAMPLES = 0.5  # of the day, for a pod whose day is used

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Asked:
    """A task of gpu-v2023. gpus: how many it asks for; part: of each. comes, takes: s."""

    online: bool
    gpus: int
    part: float
    comes: int
    takes: int


@dataclass(frozen=True)
class Days:
    """The days of online pods. duty: of each pod and step, the part of the time in which its GPU
    worked. memory: bytes."""

    duty: Floats
    memory: Floats

    @property
    def pods(self) -> int:
        return len(self.duty)


@dataclass(frozen=True)
class Trace:
    """nodes: the GPUs of each."""

    nodes: tuple[int, ...]
    tasks: tuple[Asked, ...]
    days: Days


def read(folder: Path) -> Trace:
    """SystemExit: a file is not there."""
    for name in (NODES, TASKS, f"{DUTY}.tar.gz", f"{MEMORY}.tar.gz"):
        if not (folder / name).exists():
            raise SystemExit(f"{folder / name} is not there: DATA is a folder of files of {FROM}")
    with (folder / NODES).open() as file:
        nodes = tuple(int(row["gpu"]) for row in csv.DictReader(file))
    with (folder / TASKS).open() as file:
        tasks = tuple(_tasks(csv.DictReader(file)))
    return Trace(nodes, tasks, _days(folder))


def _tasks(rows: Iterator[Mapping[str, str]] | csv.DictReader[str]) -> Iterator[Asked]:
    for row in rows:
        if int(row["num_gpu"]) and row["qos"] in (ONLINE, OFFLINE):
            comes = int(row["creation_time"])
            yield Asked(
                online=row["qos"] == ONLINE,
                gpus=int(row["num_gpu"]),
                part=int(row["gpu_milli"]) / 1000,
                comes=comes,
                takes=int(row["deletion_time"]) - comes,
            )


def _days(folder: Path) -> Days:
    duty, memory = (_samples(folder / f"{name}.tar.gz") for name in (DUTY, MEMORY))
    known = [
        pod
        for pod in sorted(duty.keys() & memory.keys())
        if _covers(duty[pod]) and _covers(memory[pod])
    ]
    if not known:
        raise SystemExit(f"{folder} has no pod with a day of duty cycles and of memory")
    first = min(time for pod in known for time in duty[pod])
    return Days(
        np.array([_by_step(duty[pod], first) for pod in known]) / 100,
        np.array([_by_step(memory[pod], first) for pod in known]),
    )


def _covers(samples: Mapping[float, float]) -> bool:
    return max(samples) - min(samples) >= LEAST_SAMPLES * DAY_S


def _samples(file: Path) -> dict[str, dict[float, float]]:
    """By pod and time."""
    found: dict[str, dict[float, float]] = {}
    with tarfile.open(file) as tar:
        inside = tar.extractfile(tar.getmembers()[0])
        assert inside is not None
        for row in csv.DictReader(io.TextIOWrapper(inside)):
            pod = found.setdefault(row["container_ip"], {})
            pod[float(row["timestamp_anon"])] = float(row["value"])
    return found


def _by_step(samples: Mapping[float, float], first: float) -> Floats:
    """The last sample before each step, or the nearest there is. A trace that is a little shorter
    than a day keeps its last value."""
    times = np.array(sorted(samples))
    values = np.array([samples[time] for time in times])
    at = np.searchsorted(times - first, np.arange(STEPS) * STEP_S, side="right") - 1
    found: Floats = np.asarray(values[np.clip(at, 0, len(times) - 1)], dtype=np.float64)
    return found

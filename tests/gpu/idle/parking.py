"""What it takes until all data of a job is off its device: parked, and suspended by Slurm."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

from leased.api.client import ask
from tests.gpu.checks import Result
from tests.gpu.idle.moves import Link, moved
from tests.gpu.idle.residents import (
    GIB,
    DeviceMemory,
    Resident,
    ending,
    measure_link,
    most_gib,
    node,
    run_dir,
    spread,
    tenant_of,
)
from tests.gpu.jobs import Job, JobFailed, Sharing, python, touch_host_memory

OPTIONS = "tq:1"
LEFT = 0.01  # of its data that may still be there
LOOK_S = 0.004
LIMIT_S = 120.0
SUSPENDED_S = 1.0  # in which the daemon sees that the job is stopped
SUSPEND_GIB_S = 80 / 1.9  # aim
WAKE_RATIO = 1.2  # aim, of what the link needs
SMALL_MIB = 2


class Watched:
    """A job alone on the device, and how much of its data NVML sees there."""

    def __init__(
        self, share: Sharing, name: str, chosen: argparse.Namespace, gib: float, unused: int
    ):
        """unused: what is used of the device, in bytes, when no job is there."""
        self.share = share
        self.memory = DeviceMemory(chosen.gpu)
        self.memory.wait_until_back_at(unused)
        mib = int(gib * 1024)
        self.resident = Resident.start(share, name, OPTIONS, chosen, mib=mib, small_mib=SMALL_MIB)
        self.empty = self.memory.used()

    def left(self) -> float:
        """The share of its data that is on the device."""
        return max(0, self.memory.used() - self.empty) / self.resident.bytes

    def gone(self) -> float:
        """When its data was off the device; JobFailed: it stays."""
        end = time.monotonic() + LIMIT_S
        while (left := self.left()) > LEFT:
            if time.monotonic() > end:
                raise self.resident.job.failed(f"has {left:.3f} of its data on the device still")
            time.sleep(LOOK_S)
        return time.monotonic()

    def until(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """The daemon says so of the job."""
        end = time.monotonic() + LIMIT_S
        while not condition(tenant_of(self.share, self.resident)):
            if time.monotonic() > end:
                raise self.resident.job.failed(f"is not {what} after {LIMIT_S:g} s")
            time.sleep(0.02)

    def park(self) -> dict[str, Any]:
        """Seconds until the data has left; what stays; bytes that were copied."""
        began = time.monotonic()
        ask(
            run_dir(self.share) / "tenant.sock",
            {"op": "park", "job_id": self.resident.job.number},
        )
        seconds = self.gone() - began
        self.until("parked", lambda job: not any(job["resident_bytes"].values()))
        out = moved(self.resident.events(), "evicted", began - 0.001, time.monotonic())
        return {"seconds": seconds, "left": self.left(), "out": out.size, "copied": out.copied}


def shown(name: str, rows: list[dict[str, Any]]) -> str:
    copied = statistics.median(row["copied"] for row in rows) / GIB
    return f"{name} {spread([row['seconds'] for row in rows])} ms, {copied:.2f} GiB copied"


# -- park ------------------------------------------------------------------------------


def park_cycles(watched: Watched, cycles: int, link: Link) -> dict[str, Any]:
    """Parked after it has changed all, woken, parked again unchanged, and parked while a capture
    of its exists, whose graph is launched then."""
    resident = watched.resident
    found = dict[str, Any](dirty=[], clean=[], wake=[], captured=[], launch=[])
    limit = link.seconds(resident.bytes)
    resident.do("fill")
    full, swapped = watched.left(), tenant_of(watched.share, resident)["memory"] == "swap"
    first, right = watched.park(), resident.right()
    print(f"  first, with new host memory: {first['seconds']:.3f} s, right: {right}", flush=True)
    for n in range(cycles):
        resident.do("write")
        found["dirty"].append(watched.park())
        found["wake"].append(resident.do("wake")["seconds"])
        found["clean"].append(watched.park())
        right &= resident.right()
        resident.do("write")
        resident.do("capture")
        found["captured"].append(watched.park())
        found["launch"].append(resident.do("launch")["seconds"])
        right &= resident.right()
        print(
            f"  {n}: s: dirty {found['dirty'][-1]['seconds']:.3f}, "
            f"wake {found['wake'][-1]:.3f}, clean {found['clean'][-1]['seconds']:.3f}, "
            f"in a capture {found['captured'][-1]['seconds']:.3f}, "
            f"launch {found['launch'][-1]:.3f}, right: {right}",
            flush=True,
        )
    return found | {
        "bytes": resident.bytes,
        "full": full,
        "first": first,
        "right": right and swapped,
        "left": max(row["left"] for row in found["dirty"] + found["clean"] + found["captured"]),
        "in_limit_s": limit,
        "out_limit_s": resident.bytes / GIB / link.out,
    }


def tell_park(found: dict[str, Any]) -> str:
    return (
        f"{found['bytes'] / GIB:.2f} GiB ({found['full']:.3f} of it seen by NVML): "
        f"{shown('changed', found['dirty'])} (link {found['out_limit_s'] * 1e3:.0f}); "
        f"{shown('unchanged', found['clean'])}; "
        f"{shown('in a capture', found['captured'])}; wake {spread(found['wake'])} ms "
        f"(link {found['in_limit_s'] * 1e3:.0f}); at most {found['left']:.4f} of the data left; "
        f"right: {found['right']}"
    )


def check_park(chosen: argparse.Namespace) -> Result:
    """A small job and a large one."""
    link = measure_link(chosen)
    sizes = [chosen.server_gib, most_gib(chosen.gpu, chosen.park_gib)]
    touch_host_memory(int(max(sizes) * GIB))
    unused = DeviceMemory(chosen.gpu).used()
    runs = []
    for gib in sizes:
        watched_jobs: list[Resident] = []
        with node("100%") as share, ending(watched_jobs):
            watched = Watched(share, f"{gib:.1f} GiB", chosen, gib, unused)
            watched_jobs.append(watched.resident)
            runs.append(park_cycles(watched, chosen.cycles, link))
        print(tell_park(runs[-1]), flush=True)
    woken = all(statistics.median(r["wake"]) <= WAKE_RATIO * r["in_limit_s"] for r in runs)
    seen = all(abs(run["full"] - 1) <= LEFT for run in runs)  # all of its data, by NVML
    good = seen and all(run["right"] and run["left"] <= LEFT for run in runs)
    return {
        "good": good and woken,
        "summary": "; ".join(map(tell_park, runs)),
        "runs": runs,
    }


# -- suspend ----------------------------------------------------------------------------


def suspend(watched: Watched, grace_s: float) -> dict[str, Any]:
    """One cycle: what is on the device when Slurm has stopped the job, and when 99% had left."""
    resident = watched.resident
    command = python("-m", "tests.support.stepd", str(resident.pid), str(grace_s))
    stepd = Job.start("slurmstepd", command)
    try:
        text, at = stepd.next_line(0)
        began, left, gone = float(text), 1.0, None
        while time.monotonic() < began + grace_s and gone is None:
            if (left := watched.left()) <= LEFT:
                gone = time.monotonic() - began
            time.sleep(LOOK_S)
        stepd.next_line(at)
        time.sleep(SUSPENDED_S)
        left = watched.left()
    finally:
        os.kill(resident.pid, signal.SIGCONT)
        stepd.stop()
    wake = resident.do("wake")["seconds"]
    right = resident.right()
    out = moved(resident.events(), "evicted", began - 0.001, time.monotonic())
    return {
        "seconds": gone,
        "left_when_stopped": left,
        "wake_s": wake,
        "right": right,
        "out": out.size,
        "copied": out.copied,
    }


def check_suspend(chosen: argparse.Namespace) -> Result:
    """A large job that changes all of its memory before each suspension."""
    if has_terminal():
        raise JobFailed("with a terminal SIGTSTP is Ctrl-Z: run it by `setsid --wait`")
    link = measure_link(chosen)
    gib = most_gib(chosen.gpu, chosen.park_gib)
    touch_host_memory(int(gib * GIB))
    unused = DeviceMemory(chosen.gpu).used()
    rows, residents = [], list[Resident]()
    with node("100%") as share, ending(residents):
        watched = Watched(share, f"{gib:.1f} GiB", chosen, gib, unused)
        residents.append(watched.resident)
        watched.resident.do("fill")
        watched.park()  # host memory is there from now on
        right = watched.resident.right()
        for n in range(chosen.cycles):
            watched.resident.do("write")
            rows.append(suspend(watched, chosen.grace))
            print(f"  {n}: {rows[-1]}", flush=True)
    size = watched.resident.bytes
    right &= all(row["right"] for row in rows)
    late = sum(row["seconds"] is None for row in rows)
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    aim = size / GIB / SUSPEND_GIB_S
    return {
        "good": right and not late and statistics.median(seconds) <= aim,
        "summary": f"{size / GIB:.1f} GiB: 99% has left after {spread(seconds)} ms (the link needs "
        f"{size / GIB / link.out * 1e3:.0f}, aim {aim * 1e3:.0f}); {late} of {len(rows)} not "
        f"within {chosen.grace:g} s; left when stopped, at most "
        f"{max(row['left_when_stopped'] for row in rows):.4f}; back and at work after "
        f"{spread([row['wake_s'] for row in rows])} ms; right: {right}",
        "rows": rows,
        "link_limit_s": size / GIB / link.out,
    }


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True

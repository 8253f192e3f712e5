"""Jobs that run resident.cu, the daemon they share a device under, and the device's memory."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from leased.api.client import ask
from tests.gpu.build import KERNELS, build
from tests.gpu.idle.moves import Event, Link, read_events
from tests.gpu.jobs import Job, JobFailed, Sharing, on_gpu, sharing
from tests.slurm.processes import wait_until

GIB = 1 << 30
MIB = 1 << 20
LIMIT_S = 180.0
LINK_GIB, MANAGED_GIB = 8, 2
SLACK = 64 * MIB  # less than a context
HOST_PART = 0.8  # of the host's free memory that a check takes at most
CARD_PART = 0.9  # of the card's free memory: the rest is for contexts


def measure_link(chosen: argparse.Namespace) -> Link:
    """Of --link, or as the program `link` finds it; measured once."""
    if not chosen.link:
        command = [str(build("link")), str(LINK_GIB), str(MANAGED_GIB)]
        found = Job.start("link", command, on_gpu(chosen.gpu)).result()
        speeds = (found["in_gib_s"], found["out_gib_s"], found["duplex_gib_s"])
        chosen.link = ",".join(map(str, speeds))
        print(f"link, GiB/s in, out, both: {chosen.link}", flush=True)
    return Link(*map(float, chosen.link.split(",")))


# -- a job -----------------------------------------------------------------------------


@dataclass
class Resident:
    """A job that does one thing after another. read: bytes of its output that have been read."""

    job: Job
    bytes: int
    read: int = 0
    pid: int = 0

    @classmethod
    def start(
        cls,
        share: Sharing | None,
        name: str,
        options: str,
        chosen: argparse.Namespace,
        *,
        mib: int,
        small_mib: int,
    ) -> Resident:
        """share: None for a bare one. Returns when it has its context and no memory yet."""
        command = [str(build("resident")), str(KERNELS), str(mib), str(small_mib)]
        env, gpu = on_gpu(chosen.gpu), str(chosen.gpu)
        job = (
            share.tenant(name, options, command, env, gpu)
            if share
            else Job.start(name, command, env)
        )
        made = cls(job, (mib + small_mib) * MIB)
        hello = made.hear(LIMIT_S)
        made.pid = int(hello["pid"])
        if hello["interposed"] != (share is not None):
            raise job.failed("has the interposer where it should not, or the other way")
        return made

    def tell(self, line: str) -> None:
        self.job.say(line)

    def hear(self, timeout: float = LIMIT_S) -> dict[str, Any]:
        """What came of a line; seconds: from its question to the answer, as the job sees it."""
        line, self.read = self.job.next_line(self.read, timeout)
        answer: dict[str, Any] = json.loads(line)
        if "answered" in answer:
            answer["seconds"] = answer["answered"] - answer["asked"]
        return answer

    def do(self, line: str, timeout: float = LIMIT_S) -> dict[str, Any]:
        self.tell(line)
        return self.hear(timeout)

    def right(self) -> bool:
        """Whether all of its memory is what it must be."""
        return bool(self.do("check")["wrong"] == 0)

    def events(self) -> list[Event]:
        return read_events(self.job.said())


@contextmanager
def ending(residents: Sequence[Resident]) -> Iterator[None]:
    """Whatever happens within: none of them runs behind it."""
    try:
        yield
    finally:
        for resident in residents:
            resident.job.stop()


# -- the daemon ------------------------------------------------------------------------


@contextmanager
def node(memory: str, limits: str = "") -> Iterator[Sharing]:
    """The daemon and the keeper of copies, as a site has them. memory: cap of the device."""
    os.environ["GPU_LEASE_DEBUG"] = "1"  # tells what moved, and when
    with sharing(memory, limits, copies=True) as share:
        wait_until("gpu-leased-copies", lambda: bool(status(share)["copies"]["kept"]))
        yield share


def status(share: Sharing) -> dict[str, Any]:
    return dict(ask(share.admin, {"op": "status"}))


def tenant_of(share: Sharing, resident: Resident) -> dict[str, Any]:
    """The job as the daemon has it."""
    tenants = status(share)["tenants"]
    return dict(next(t for t in tenants if t["job_id"] == resident.job.number))


def run_dir(share: Sharing) -> Path:
    return share.leased.run_dir


# -- memory of device and host -----------------------------------------------------------


class DeviceMemory:
    """What NVML says of one device."""

    def __init__(self, gpu: int):
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)

    def used(self) -> int:
        """Bytes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)

    def free(self) -> int:
        """Bytes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).free)

    def wait_until_back_at(self, used: int) -> None:
        """Until as little is used as that was, for the driver may free what an ended process had
        some seconds after it. JobFailed: it stays."""
        end = time.monotonic() + LIMIT_S
        while (now := self.used()) > used + SLACK:
            if time.monotonic() > end:
                raise JobFailed(f"{(now - used) / GIB:.2f} GiB of an ended job stay on the device")
            time.sleep(0.05)

    def settled_free(self) -> int:
        """Bytes, once the driver has wiped what ended processes had."""
        last, now = -1, self.free()
        while now != last:
            time.sleep(1)
            last, now = now, self.free()
        return now


def host_free() -> int:
    """Bytes that programs can still have, by the kernel's word and by this cgroup's limit."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        if Path(limit).exists() and (most := Path(limit).read_text().strip()) != "max":
            free = min(free, int(most) - int(Path(usage).read_text()))
    return free


def most_gib(gpu: int, wanted: float) -> float:
    """So much, or what card and host have room for; says so where it is less."""
    card = DeviceMemory(gpu).settled_free() / GIB * CARD_PART
    host = host_free() / GIB * HOST_PART
    size = min(wanted, card, host)
    if size < wanted:
        print(f"{size:.4g} instead of {wanted:g} GiB: card {card:.4g}, host {host:.4g}", flush=True)
    return size


# -- figures ---------------------------------------------------------------------------


def spread(values: Sequence[float], unit: float = 1e3) -> str:
    """Median and range, in thousandths by default."""
    if not values:
        return "-"
    low, middle, high = (f(values) * unit for f in (min, statistics.median, max))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def median_of(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    """0 where there are none."""
    return statistics.median(map(value, rows)) if rows else 0.0

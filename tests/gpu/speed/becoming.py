"""What it costs a process to be one of a job: the least program, bare and as a job, by turns."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from tests.gpu.build import build
from tests.gpu.jobs import JobFailed, Sharing, on_gpu
from tests.support.tenant import register
from tests.support.together import zip_strict

LIMIT_S = 60.0
JOB = 1  # no other job of that daemon has this number


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Until it has ended, without looking now and then. JobFailed: it failed, or is late."""
    descriptor = os.pidfd_open(process.pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], LIMIT_S)
    finally:
        os.close(descriptor)
    if not ended:
        process.kill()
    if process.wait():
        raise JobFailed(f"trivial failed ({process.returncode})")


def _run_ms(env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    command = [str(build("trivial"))]
    _wait(subprocess.Popen(command, env=os.environ | env, stdout=subprocess.DEVNULL))
    return (time.perf_counter() - began) * 1e3


def measure_becoming(share: Sharing, options: str, gpu: int, rounds: int) -> dict[str, Any]:
    """ms of the whole program both ways, what being a job adds, and what its registering took.

    A step registers once, its processes load the interposer and connect, each once.
    """
    began = time.perf_counter()
    env = register(share.admin, JOB, options, [gpu])
    register_ms = (time.perf_counter() - began) * 1e3
    ways = {"bare": on_gpu(gpu), "job": on_gpu(gpu) | env}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for n in range(rounds + 1):
        for way in ways if n % 2 else reversed(ways):
            took = _run_ms(ways[way])
            if n:  # the first ones read files that nobody had read
                times[way].append(took)
    added = [job - bare for job, bare in zip_strict(times["job"], times["bare"])]
    return {
        "bare_ms": statistics.median(times["bare"]),
        "job_ms": statistics.median(times["job"]),
        "added_ms": statistics.median(added),
        "added_ms_range": [min(added), max(added)],
        "register_ms": register_ms,
        "times_ms": times,
    }

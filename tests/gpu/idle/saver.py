"""Beside torch_memory_saver, which programs call themselves to let go of their memory."""

from __future__ import annotations

import argparse
import statistics
from importlib.util import find_spec
from typing import Any

from tests.gpu.checks import Result
from tests.gpu.idle.parking import Watched, park_cycles, tell_park
from tests.gpu.idle.residents import GIB, DeviceMemory, Resident, ending, measure_link, node
from tests.gpu.jobs import Job, JobFailed, framework_python, on_gpu, touch_host_memory

NEEDED = ("torch", "torch_memory_saver")


def run_saver(chosen: argparse.Namespace, *more: str) -> dict[str, Any]:
    """GiB/s of a pause and of a resume, from the second cycle on: the first makes its copies."""
    command = framework_python("-m", "tests.gpu.saver_program", "--gib", f"{chosen.server_gib:g}")
    command += ["--cycles", str(chosen.cycles + 1), *more]
    found = Job.start("torch_memory_saver", command, on_gpu(chosen.gpu)).result()
    gib = found["bytes"] / GIB
    speeds = {
        "out_gib_s": gib / statistics.median(found["pause_s"][1:]),
        "in_gib_s": gib / statistics.median(found["resume_s"][1:]),
    }
    print(f"  torch_memory_saver {' '.join(more)}: {found | speeds}", flush=True)
    return found | speeds


def retained(chosen: argparse.Namespace) -> dict[str, Any]:
    """The same where it keeps its host memory from pause to pause; {}: it cannot."""
    try:
        return run_saver(chosen, "--retain")
    except JobFailed as fault:
        print(f"  with --retain: {fault}", flush=True)
        return {}


def check_saver(chosen: argparse.Namespace) -> Result:
    """The same number of bytes, its way and by parking, in one run."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return {"good": True, "summary": f"not run: there is no Python module {missing}"}
    link = measure_link(chosen)
    touch_host_memory(int(2 * chosen.server_gib * GIB))
    unused = DeviceMemory(chosen.gpu).used()
    theirs = run_saver(chosen)
    kept = retained(chosen)
    residents: list[Resident] = []
    with node("100%") as share, ending(residents):
        watched = Watched(share, "parked", chosen, chosen.server_gib, unused)
        residents.append(watched.resident)
        ours = park_cycles(watched, chosen.cycles, link)
    print(tell_park(ours), flush=True)
    gib = ours["bytes"] / GIB
    clean, dirty = (
        gib / statistics.median(row["seconds"] for row in ours[name]) for name in ("clean", "dirty")
    )
    into = gib / statistics.median(ours["wake"])
    return {
        "good": theirs["right"] and ours["right"],
        "summary": f"GiB/s out: torch_memory_saver {theirs['out_gib_s']:.1f} "
        f"({kept.get('out_gib_s', 0):.1f} with host memory retained), ours {clean:.1f} unchanged "
        f"and {dirty:.1f} changed; in: {theirs['in_gib_s']:.1f} ({kept.get('in_gib_s', 0):.1f}), "
        f"ours {into:.1f}; link {link.out:.1f} out, {link.into:.1f} in; right: "
        f"{theirs['right']}, {ours['right']}",
        "theirs": theirs,
        "retained": kept,
        "ours": ours,
    }

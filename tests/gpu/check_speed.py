"""Twelve programs that share a GPU with nobody: within 1% of the bare driver's speed?

`python -m tests.gpu.check_speed [--gpus 0,1] [--only NAME,...] [--modes bare,swap]` on a machine
with a GPU, as root. Of each program three processes bare and three of each kind of memory under
the interposer are set up at fixed addresses, and wait at a barrier. Then all are put onto the same
cores, and each in turn runs a segment of some 60 ms, in an order that is reversed from round to
round. The ratio is that of a low quantile of a step's time, since a host's noise only adds to it;
its interval covers how processes, and rounds, differ. Where it contains 1.01 the calls decide: how
many of the driver's a step makes, times what the interposer adds to each in one process, is the
most that calls can cost. The table says which decided. With two GPUs each has half of the programs
and of the cores. Writes speed.json in $OUT or build/bench. Exit status 1: a program failed, or is
slower by more than 1% for sure: its interval lies above 1.01.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu.build import KERNELS, build, build_all
from tests.gpu.jobs import (
    ROOT,
    Job,
    JobFailed,
    Sharing,
    on_gpu,
    print_table,
    python,
    sharing,
    show,
    stopping,
    write_report,
)
from tests.gpu.speed.calls import measure_costs
from tests.gpu.speed.measuring import (
    CLOCKS,
    Process,
    Row,
    compare,
    compare_calls,
    end,
    get_ready,
    measure,
    steps_of,
)
from tests.gpu.speed.placing import fixed_addresses, reserve_cores, share_of

# small_calls, and those of tests/gpu/speed/program.py, which needs the frameworks to be imported.
PROGRAMS = (
    *("cnn", "bf16_item", "graph", "compiled", "malloc_async", "decode"),
    *("triton", "expandable", "jax_jit", "cupy", "loader", "small_calls"),
)
MODES = {"bare": None, "managed": "memory:managed", "swap": "memory:swap", "auto": "memory:auto"}
MEMORY, DEVICE, LIMITS = "48GiB", "", 'swap_host = "4096GiB"\n'
# All processes of a program start at once, and then hash strings alike.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "4",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


def command_of(name: str) -> list[str]:
    if name == "small_calls":
        return [str(build("small_calls")), str(KERNELS)]
    return python("-m", "tests.gpu.speed.program", name)


def start(share: Sharing, name: str, mode: str, chosen: argparse.Namespace) -> Process:
    label, options = f"{name}, {mode}", MODES[mode]
    command = [*fixed_addresses(), *command_of(name)]
    env = on_gpu(chosen.gpu) | ENVIRONMENT
    if options is None:
        return Process(mode, Job.start(label, command, env))
    return Process(mode, share.tenant(label, options, command, env, str(chosen.gpu)))


def check_program(
    share: Sharing, name: str, chosen: argparse.Namespace, costs: dict[str, dict[str, float]]
) -> Row:
    """One program; what fails is kept in its row. costs: of calls, by mode."""
    row, began = Row(name), time.monotonic()
    modes = chosen.modes.split(",")
    processes = [
        start(share, name, mode, chosen) for _ in range(chosen.processes) for mode in modes
    ]
    try:
        with stopping(*(process.job for process in processes)):
            get_ready(processes, chosen.cores)
            row.steps = steps_of(processes, chosen.seconds)
            measure(processes, row.steps, chosen.rounds, chosen.most)
            counted = processes[0].count()
            row.processes = [end(process) for process in processes]
            compare(row, processes)
            compare_calls(row, counted, costs)
    except JobFailed as fault:
        row.error = str(fault)
        print(f"FAILED: {fault}", flush=True)
    row.took_s = round(time.monotonic() - began, 1)
    words = {
        mode: f"{row.verdict(mode)} {found['host'].ratio:.4f} {found['device'].ratio:.4f}"
        for mode, found in row.ratios.items()
    }
    print(f"{name}: {words or 'failed'}, {row.took_s} s {row.no_calls}", flush=True)
    return row


def costs_of_calls(share: Sharing, chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """By interposed mode."""
    modes = {mode: options for mode, options in MODES.items() if mode in chosen.modes.split(",")}
    costs = {
        mode: measure_costs(share, options, chosen.gpu, chosen.cores)
        for mode, options in modes.items()
        if options is not None
    }
    show("ns that the interposer adds to a call", costs)
    return costs


def check_all(names: Sequence[str], chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """The programs on one GPU; written as soon as each is known."""
    end_at, rows = time.monotonic() + chosen.limit, list[dict[str, Any]]()
    chosen.cores = reserve_cores()
    with sharing(MEMORY, LIMITS, DEVICE) as share:
        costs = costs_of_calls(share, chosen)
        for name in names:
            if time.monotonic() > end_at:
                print(f"no time for {name}", flush=True)
                rows.append(Row(name, error="no time was left").report())
            else:
                rows.append(check_program(share, name, chosen, costs).report())
            write_report(report_of(str(chosen.gpu)).stem, rows)
    return rows


def report_of(gpu: str) -> Path:
    """Where the rows of one GPU are written."""
    return Path(os.environ.get("OUT") or ROOT / "build" / "bench") / f"speed-{gpu}.json"


def check_on_several(gpus: Sequence[str], chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A part of the programs on each GPU at the same time, each with its part of the cores."""
    cores = os.sched_getaffinity(0)
    running = []
    for n, gpu in enumerate(gpus):
        report_of(gpu).unlink(missing_ok=True)
        command = python("-m", "tests.gpu.check_speed", "--part", "--gpus", gpu)
        command += ["--only", ",".join(names_of(chosen)[n :: len(gpus)])]
        for option in ("modes", "seconds", "rounds", "most", "processes", "limit"):
            command += [f"--{option}", str(getattr(chosen, option))]
        own = ",".join(map(str, share_of(cores, n, len(gpus))))
        running.append(subprocess.Popen(["taskset", "-c", own, *command], cwd=ROOT))
    for process in running:
        process.wait()
    files = [report_of(gpu) for gpu in gpus]
    return [row for file in files if file.exists() for row in json.loads(file.read_text())]


def names_of(chosen: argparse.Namespace) -> list[str]:
    names = [name for name in chosen.only.split(",") if name] or list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise SystemExit(f"no program {', '.join(unknown)}; there is {', '.join(PROGRAMS)}")
    return names


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    head = ["program", "memory", "step, us", "bare", "host's clock", "95%", "device's", "95%"]
    head += ["by calls", "decided by", ""]
    cells = []
    for row in rows:
        for mode, found in row["ratios"].items():
            line = [row["name"], mode, row["step_us"][mode], row["step_us"]["bare"]]
            for clock in CLOCKS:
                ratio = found[clock]
                line += [f"{ratio['ratio']:.4f}", f"{ratio['low']:.4f} to {ratio['high']:.4f}"]
            most = row["by_calls"].get(mode)
            line.append(f"{most:.4f}" if most else None)
            cells.append([*line, row["decided_by"][mode], row["verdicts"][mode]])
        if row["error"]:
            cells.append([row["name"], "failed", *[None] * 9])
    print_table(head, cells)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", default="0", help="indices, with commas between")
    parser.add_argument("--only", default="", help="programs, with commas between")
    parser.add_argument("--modes", default="bare,swap", help=f"of {', '.join(MODES)}")
    parser.add_argument("--seconds", type=float, default=0.06, help="of a segment")
    parser.add_argument("--rounds", type=int, default=80, help="segments of each process")
    parser.add_argument("--most", type=float, default=32.0, help="no round after so many seconds")
    parser.add_argument("--processes", type=int, default=3, help="of each mode")
    parser.add_argument("--limit", type=float, default=420.0, help="start nothing after so many s")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    modes = chosen.modes.split(",")
    if modes[0] != "bare" or len(modes) < 2 or not set(modes) <= MODES.keys():
        parser.error(f"--modes: bare, and then some of {', '.join(MODES)}; not {chosen.modes}")
    return chosen


def main() -> int:
    chosen = parse_arguments()
    names = names_of(chosen)
    gpus = chosen.gpus.split(",")[: len(names)]
    if len(gpus) == 1:
        chosen.gpu = int(gpus[0])
        rows = check_all(names, chosen)
    else:
        build_all("small_calls", "call_cost", "count_calls")
        rows = check_on_several(gpus, chosen)
    if not chosen.part:
        print_rows(rows)
        write_report("speed", rows)
    return 0 if len(rows) == len(names) and all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

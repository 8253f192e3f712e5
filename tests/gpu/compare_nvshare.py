"""The bare driver, this project and nvshare, in one run on one real GPU.

`python -m tests.gpu.compare_nvshare --nvshare DIR` on a machine with a GPU, as
root. DIR holds libnvshare.so, nvshare-scheduler and nvsharectl. Prints a table;
writes nvshare.json in $OUT or build/bench. Exit status 1 if a program failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Optional, Union

from tests.gpu import commands
from tests.gpu.build import build_all
from tests.gpu.jobs import (
    ONE_GPU,
    ROOT,
    Job,
    JobFailed,
    Sharing,
    print_table,
    run_together,
    sharing,
    write_report,
)
from tests.slurm.processes import Daemon

MEMORY = "8GiB"
QUANTUM_S = 2
NVSHARE_SOCKET = Path("/var/run/nvshare/scheduler.sock")

Start = Callable[[str, Sequence[str]], Job]
Values = dict[str, Optional[Union[float, str]]]


@contextmanager
def nvshare_scheduler(directory: Path) -> Iterator[None]:
    """nvshare's daemon, with its quantum set."""
    log = ROOT / "build" / "bench" / "nvshare-scheduler.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    NVSHARE_SOCKET.unlink(missing_ok=True)
    scheduler = Daemon.start("nvshare-scheduler", [str(directory / "nvshare-scheduler")], log)
    try:
        scheduler.wait_ready(NVSHARE_SOCKET.exists)
        control = [str(directory / "nvsharectl"), "-T", str(QUANTUM_S)]
        subprocess.run(control, check=True, timeout=10)
        yield
    finally:
        scheduler.stop()


def start_ours(share: Sharing, options: str, name: str, command: Sequence[str]) -> Job:
    return share.tenant(name, options, command, ONE_GPU)


def start_bare(name: str, command: Sequence[str]) -> Job:
    return Job.start(name, command, ONE_GPU)


def start_nvshare(library: Path, name: str, command: Sequence[str]) -> Job:
    return Job.start(name, command, ONE_GPU | {"LD_PRELOAD": str(library)})


# -- what is measured ---------------------------------------------------------------


def measure_launch(start: Start, seconds: float) -> Values:
    """Nanoseconds of submitting, by kind."""
    result = start("launch", commands.launch(seconds)).result()
    return {f"launch: {name}": value for name, value in result.items() if name.endswith("_ns")}


def measure_alone(start: Start, seconds: float, name: str) -> Values:
    result = start(name, commands.workload(name, seconds)).result()
    digest = result["digest"][:12]
    return {f"{name}: steps/s": commands.speed(result), f"{name}: digest": digest}


def measure_pair(start: Start, seconds: float, name: str) -> Values:
    """Steps per second of two at once, together; long enough for several quanta each."""
    command = commands.workload(name, 4 * seconds, ready=True)
    results = run_together([start(f"{name} {n} of two", command) for n in range(2)])
    steps = [result["timed_steps"] for result in results]
    digests = {result["digest"][:12] for result in results}
    return {
        f"two {name}: steps/s of both": round(sum(steps) / commands.whole_seconds(results), 2),
        f"two {name}: smaller share": round(min(steps) / sum(steps), 3),
        f"two {name}: digests": " ".join(sorted(digests)),
    }


def measure_duty(start: Start, _: float, rounds: int) -> Values:
    results = run_together([start(f"duty {n} of two", commands.duty(rounds)) for n in range(2)])
    return {"two duty jobs: s": commands.whole_seconds(results)}


def measures(rounds: int) -> list[Callable[[Start, float], Values]]:
    """In the order in which they run."""
    out: list[Callable[[Start, float], Values]] = [measure_launch]
    for name in ("torch_eager", "torch_graph"):
        out.append(partial(measure_alone, name=name))
    for name in ("torch_eager", "torch_graph"):
        out.append(partial(measure_pair, name=name))
    out.append(partial(measure_duty, rounds=rounds))
    return out


# -- running ------------------------------------------------------------------------


class Comparison:
    """What was measured, by system and name. errors: programs that failed."""

    def __init__(self, seconds: float, rounds: int):
        self.seconds = seconds
        self.measures = measures(rounds)
        self.values: dict[str, Values] = {}
        self.errors: dict[str, list[str]] = {}

    def run(self, system: str, start: Start) -> None:
        """All measures under one system; a failure is kept and does not stop the rest."""
        started = time.monotonic()
        values = self.values.setdefault(system, {})
        for measure in self.measures:
            try:
                found = measure(start, self.seconds)
            except JobFailed as fault:
                self.errors.setdefault(system, []).append(str(fault))
                print(f"FAILED under {system}: {fault}", flush=True)
                continue
            values |= found
            print(f"{system}: {found}", flush=True)
            write_report("nvshare", {"values": self.values, "errors": self.errors})
        print(f"{system}: {time.monotonic() - started:.0f} s in all", flush=True)

    def print(self) -> None:
        names = {name: None for values in self.values.values() for name in values}
        rows = [[name, *(v.get(name) for v in self.values.values())] for name in names]
        print_table(["measured", *self.values], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvshare", type=Path, required=True, help="directory of its programs")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each timed part")
    parser.add_argument("--auto", action="store_true", help="also this project with lock:auto")
    chosen = parser.parse_args()
    library = chosen.nvshare.resolve() / "libnvshare.so"
    if not os.access(library, os.R_OK):
        raise SystemExit(f"no {library}")
    build_all("launch", "duty")
    comparison = Comparison(chosen.seconds, commands.duty_rounds())
    comparison.run("bare", start_bare)
    with sharing(MEMORY) as share:
        comparison.run("ours", partial(start_ours, share, f"tq:{QUANTUM_S},lock:on"))
        if chosen.auto:
            comparison.run("ours, auto", partial(start_ours, share, "lock:auto"))
    with nvshare_scheduler(library.parent):
        comparison.run("nvshare", partial(start_nvshare, library))
    comparison.print()
    return 1 if comparison.errors else 0


if __name__ == "__main__":
    raise SystemExit(main())

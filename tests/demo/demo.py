"""`make demo`: share one GPU between real Slurm jobs, in every mode, and show what it costs.

Starts a private Slurm and gpu-leased under build/demo, submits the jobs of
`scenarios.py` with sbatch, prints tables and writes build/demo/result.json, what gpu-leased has
recorded to build/demo/record, and a picture of that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from leased import policy
from leased.cli import plot_draw
from leased.sim import record_files, spans
from tests.demo import gpus, table
from tests.demo.scenarios import JOBS, PLAN, Mode, Workload, heavy, light, modes
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import StartError
from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tests" / "demo" / "job.py"
OUT = ROOT / "build" / "demo"
RECORD = "record"  # of gpu-leased, for gpu-leasectl plot and simulate
NEXT = """
What to try next:
  make demo ARGS="--policy fair"    the same jobs under another policy (docs/daemon.md)
  docs/user.md                      how your own jobs share a GPU
  docs/admin.md                     how to install it on a cluster
"""
JOB_LIMIT_S = 600  # a job takes a minute at most where nothing else runs


@dataclass(frozen=True)
class Pace:
    """How long the demo's parts are, in seconds: phases of heavy jobs, light jobs, the quantum."""

    phase_s: float
    steps: int
    light_s: float
    kernel_s: float
    quantum_s: float


FULL = Pace(phase_s=1.5, steps=5, light_s=5.0, kernel_s=0.004, quantum_s=3.0)
QUICK = Pace(phase_s=0.5, steps=1, light_s=0.5, kernel_s=0.004, quantum_s=1.0)


class Demo:
    """A running cluster and the results so far."""

    def __init__(self, cluster: PrivateSlurm, gpu: gpus.DemoGpu, pace: Pace, console: Console):
        self.cluster = cluster
        self.gpu = gpu
        self.pace = pace
        self.console = console
        self.modes = modes(pace.quantum_s)
        self.runs: list[dict[str, Any]] = []
        self.job_ids: list[int] = []

    def submit(self, name: str, share: str | None, arguments: list[str]) -> tuple[int, Path]:
        """sbatch one job; returns its id and the file where it will write its report."""
        report = OUT / f"{name}.json"
        report.unlink(missing_ok=True)
        command = [sys.executable, str(JOB), *arguments, "--result", str(report)]
        script = OUT / f"{name}.sh"
        script.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
        wants = ["--gres=gpu:1"] if share is None else ["--gres=shard:1", f"--gpu-share={share}"]
        job_id = self.cluster.sbatch(
            *wants,
            f"--job-name={name}",
            f"--time={JOB_LIMIT_S // 60}",
            f"--output={OUT / name}.log",
            str(script),
        )
        return job_id, report

    def calibrate(self) -> tuple[int, float]:
        """(bytes a sharing job may have, seconds one round takes per byte), from a job alone."""
        size = 64 << 20
        arguments = ["--bytes", str(size), "--piece", str(8 << 20), "--calibrate"]
        job_id, report = self.submit("calibrate", "lock:auto", arguments)
        self.wait(job_id)
        measured = self.read_report(job_id, report)
        if "round_s" not in measured:
            raise SystemExit(f"demo: the first job failed; see {OUT}/calibrate.log")
        return measured["total_bytes"], measured["round_s"] / size

    def wait(self, job_id: int) -> None:
        """Until it has ended; one that Slurm had to end says so itself."""
        try:
            self.cluster.wait(job_id, timeout=JOB_LIMIT_S + 60)
        except TimeoutError as fault:
            raise SystemExit(
                f"demo: job {job_id} has not ended after {JOB_LIMIT_S} s ({load_words()}). "
                f"Run the demo again when the machine is idle; logs are in {OUT.relative_to(ROOT)}/"
            ) from fault

    def read_report(self, job_id: int, report: Path) -> dict[str, Any]:
        """A job's own report; without one (it died early) a report of nothing."""
        if not report.exists():
            self.console.print(
                f"[red]job {job_id} wrote no report[/]; see {report.with_suffix('.log')}"
            )
            return {"checksum_ok": False}
        read: dict[str, Any] = json.loads(report.read_text())
        return read

    def run(self, workload: Workload, mode: Mode) -> None:
        """Both jobs of one cell of the table, from submission to Slurm's accounting."""
        began = time.monotonic()
        submitted = [
            self.submit(f"{workload.name}-{mode.name}-{n + 1}", mode.share, workload.arguments())
            for n in range(JOBS)
        ]
        with self.console.status(
            f"{workload.name}, {mode.label}: jobs {submitted[0][0]}, {submitted[1][0]}"
        ):
            for job_id, _ in submitted:
                self.wait(job_id)
        reports = [self.read_report(job_id, report) for job_id, report in submitted]
        jobs = [
            self.job_result(job_id, mode, report)
            for (job_id, _), report in zip(submitted, reports, strict=True)
        ]
        makespan = makespan_of(mode, reports) or time.monotonic() - began
        self.runs.append(
            {"name": workload.name, "mode": mode.name, "makespan_s": makespan, "jobs": jobs}
        )
        self.job_ids += [job_id for job_id, _ in submitted]
        self.console.print(f"  {workload.name:6} {mode.label:16} {makespan:6.1f} s")

    def job_result(self, job_id: int, mode: Mode, report: dict[str, Any]) -> dict[str, Any]:
        """One job of result.json: Slurm's view, its usage in the accounting, its own checks."""
        row = self.cluster.accounting(job_id, usage=mode.share is not None)
        used = {"lease_s": 0.0, "wait_s": 0.0, "handoffs": 0, "moved_bytes": 0}
        if mode.share is None:
            # A whole GPU for itself: it held it from start to end.
            used["lease_s"] = report.get("finished_at", 0.0) - report.get("started_at", 0.0)
        for device in row.usage.get("gpus", {}).values():
            for key in used:
                used[key] += device[key]
        moved = self.gpu.moved_bytes(report.get("pid", 0))
        if moved is not None:
            used["moved_bytes"] = moved
        return {
            "job_id": job_id,
            "state": row.state,
            "exit_code": row.exit_code,
            **used,
            "checksum_ok": report["checksum_ok"],
        }


def load_words() -> str:
    return f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"


def makespan_of(mode: Mode, reports: list[dict[str, Any]]) -> float | None:
    """Seconds for both jobs; None when one has no times.

    One after the other they count without the gap between them, in which Slurm
    starts the second and the first one's data is verified on the CPU: that
    would make sharing look better than it is.
    """
    times = [(r["started_at"], r["finished_at"]) for r in reports if "finished_at" in r]
    if len(times) < JOBS:
        return None
    if mode.share is None:
        return float(sum(end - start for start, end in times))
    return float(max(end for _, end in times) - min(start for start, _ in times))


@contextlib.contextmanager
def started(
    kind: str, console: Console, policy_name: str = policy.DEFAULT
) -> Iterator[tuple[PrivateSlurm, gpus.DemoGpu]]:
    """The GPU, a private Slurm and gpu-leased, all stopped at the end."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        gpu = stack.enter_context(gpus.choose(kind, OUT / "gpu"))
        console.print(f"GPU: {table.gpu_words(gpu.describe())}")
        console.print("starting munged, mariadbd, slurmdbd, slurmctld, slurmd and gpu-leased ...")
        work = work_dir()
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        slurm = PrivateSlurm(OUT / "slurm", gpu_files=gpu.files, env=gpu.env)
        slurm.plugin_args.append(f"admin_socket={work}/run/admin.sock")
        cluster = stack.enter_context(slurm)
        stack.callback(keep_record, work)
        settings = f'record = "{work / RECORD}"\n' + (gpu.device_config or "[device]\n")
        settings += f'policy = "{policy_name}"\n'
        stack.enter_context(Leased(work / "leased", work / "run", slurm.env, extra=settings))
        console.print(f"Slurm {cluster.version} is up; all of it is under {OUT.relative_to(ROOT)}/")
        yield cluster, gpu
        console.print("stopping everything ...")


def keep_record(work: Path) -> None:
    """What gpu-leased has recorded, which must have ended."""
    if (work / RECORD).exists():
        shutil.copy(work / RECORD, OUT / RECORD)


def is_drawn(run: dict[str, Any]) -> bool:
    """Two jobs of which the memory holds one, by turns: there is most to see."""
    return (run["name"], run["mode"]) == ("heavy", "tq")


def say_picture(jobs: list[int], console: Console) -> None:
    """Draw who had the GPU when, from what gpu-leased has recorded, and say where it is."""
    picture = OUT / "demo.svg"
    found = spans.picture(record_files.load(OUT / RECORD, []), jobs)
    try:
        plot_draw.draw(found, picture)
    except ImportError:
        console.print("No picture is drawn, since this Python has no matplotlib.")
    else:
        named = " and ".join(map(str, jobs))
        console.print(f"Jobs {named} as they took turns, drawn: {picture.relative_to(ROOT)}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=["auto", "nvidia", "emulated"], default="auto")
    parser.add_argument("--policy", choices=policy.names(), default=policy.DEFAULT)
    parser.add_argument("--quick", action="store_true", help="short jobs: shows that it works")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    # Tables need this much; a narrower terminal wraps them, which is better than cutting.
    console = Console(highlight=False)
    console.width = max(console.width, 108)
    pace = QUICK if options.quick else FULL
    with started(options.gpu, console, options.policy) as (cluster, gpu):
        if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):  # set-up alone makes less
            console.print(
                f"[yellow]Other programs keep this machine busy[/] ({load_words()}): the "
                "times below are longer than on an idle machine, and may differ by row"
            )
        demo = Demo(cluster, gpu, pace, console)
        total, per_byte = demo.calibrate()
        workloads = {
            "heavy": heavy(total, per_byte, pace.phase_s, pace.steps),
            "light": light(total, per_byte, pace.kernel_s, pace.light_s),
        }
        for name, rows in PLAN.items():
            for row in rows:
                demo.run(workloads[name], demo.modes[row])
        lines = cluster.sacct_lines(demo.job_ids)
        result = {
            "gpu": gpu.describe(),
            "policy": options.policy,
            "scenarios": demo.runs,
            "sacct": lines,
        }
    (OUT / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    console.print()
    table.print_results(result, demo.modes, console)
    console.print()
    turns = [job["job_id"] for run in demo.runs if is_drawn(run) for job in run["jobs"]]
    table.print_accounting(lines, turns[0], console)
    console.print(f"\nAll of this for programs: {(OUT / 'result.json').relative_to(ROOT)}")
    say_picture(turns, console)
    console.print(NEXT, markup=False)
    return 0 if all(job["checksum_ok"] for run in demo.runs for job in run["jobs"]) else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except StartError as fault:
        raise SystemExit(f"make demo: {fault}") from None

"""`make demo`: share one GPU between real Slurm jobs, in every mode, and show what it costs.

Starts a private Slurm and gpu-leased under build/demo, submits the jobs of
`scenarios.py` with sbatch, prints what they took, a screen of it in all, and writes
build/demo/result.json, what gpu-leased has recorded to build/demo/record, and a picture of that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
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
from leased.sim import history, spans
from tests.demo import gpus, table
from tests.demo.scenarios import (
    BESIDE,
    JOBS,
    PLAN,
    Beside,
    Mode,
    Workload,
    batch,
    heavy,
    light,
    modes,
    service,
)
from tests.slurm.cluster import ASK_S, FINISHED, PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import StartError, wait_until
from tests.support.together import zip_strict
from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]
UNNAMED = "allocation"  # of a job of which slurmdbd knows only that it has ended
JOB = ROOT / "tests" / "demo" / "job.py"
OUT = ROOT / "build" / "demo"
RECORD = "record"  # of gpu-leased, for gpu-leasectl plot and simulate
NEXT = """\
What to try next: make demo ARGS="--policy fair" (another policy),
docs/user.md (how your own jobs share a GPU), docs/admin.md (how to install it)"""
JOB_LIMIT_S = 600  # a job takes a minute at most where nothing else runs


@dataclass(frozen=True)
class Pace:
    """How long the demo's parts are, in seconds: phases of heavy jobs, light jobs, the quantum,
    how long a service serves."""

    phase_s: float
    steps: int
    light_s: float
    kernel_s: float
    quantum_s: float
    serves_s: float


FULL = Pace(phase_s=1.5, steps=5, light_s=5.0, kernel_s=0.004, quantum_s=3.0, serves_s=20.0)
QUICK = Pace(phase_s=0.2, steps=1, light_s=0.2, kernel_s=0.004, quantum_s=1.0, serves_s=1.0)


class Demo:
    """A running cluster and the results so far."""

    def __init__(self, cluster: PrivateSlurm, gpu: gpus.DemoGpu, pace: Pace, console: Console):
        self.cluster = cluster
        self.gpu = gpu
        self.pace = pace
        self.console = console
        self.modes = modes(pace.quantum_s)
        self.runs: list[dict[str, Any]] = []
        self.services: list[dict[str, Any]] = []

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """All jobs of result.json so far, in the order of their ends."""
        return [job for run in (*self.runs, *self.services) for job in run["jobs"]]

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

    def wait_for_steps(self, job_id: int, report: Path) -> None:
        """Until the job has said that some of its steps are done, or has ended."""
        log = report.with_suffix(".log")

        def works() -> bool:
            said = log.read_text() if log.exists() else ""
            return "step" in said or self.cluster.job(job_id)["JobState"] in FINISHED

        wait_until(f"job {job_id} to work", works, timeout=JOB_LIMIT_S, step=ASK_S)

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
            self.job_result(job_id, mode.share, report)
            for (job_id, _), report in zip_strict(submitted, reports)
        ]
        makespan = makespan_of(mode, reports) or time.monotonic() - began
        self.runs.append(
            {"name": workload.name, "mode": mode.name, "makespan_s": makespan, "jobs": jobs}
        )
        alone = next(run["makespan_s"] for run in self.runs if run["name"] == workload.name)
        table.print_time(mode, makespan, makespan / alone, self.console)

    def serve(self, serves: Workload, works: Workload, way: Beside) -> None:
        """A service, beside a batch job that begins before it and ends after it."""
        ends = OUT / f"{way.name}.end"
        submitted = []
        with self.console.status(f"a service, {way.label}"):
            if way.batch is not None:
                arguments = [*works.arguments(), "--until", str(ends)]
                submitted.append(self.submit(f"batch-{way.name}", way.batch, arguments))
                self.wait_for_steps(*submitted[0])
            named = self.submit(f"service-{way.name}", way.service, serves.arguments())
            submitted.insert(0, named)
            self.wait(named[0])
            ends.touch()
            for job_id, _ in submitted[1:]:
                self.wait(job_id)
        reports = [self.read_report(job_id, report) for job_id, report in submitted]
        figures = {key: reports[0].get(key, math.nan) for key in ("step_p50_ms", "step_p99_ms")}
        figures["batch_steps_s"] = reports[1].get("steps_s", math.nan) if reports[1:] else 0.0
        jobs = [
            self.job_result(job_id, way.service, report)
            for (job_id, _), report in zip_strict(submitted, reports)
        ]
        self.services.append({"mode": way.name, **figures, "jobs": jobs})
        table.print_service(way, figures, self.console)

    def job_result(self, job_id: int, share: str | None, report: dict[str, Any]) -> dict[str, Any]:
        """One job of result.json: Slurm's view, its usage in the accounting, its own checks."""
        row = self.cluster.accounting(job_id, usage=share is not None)
        used = {"lease_s": 0.0, "wait_s": 0.0, "handoffs": 0, "moved_bytes": 0}
        if share is None:
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
        settings += f'policy = "{policy_name}"\n[classes]\nmay_online = ["all"]\n'
        stack.enter_context(Leased(work / "leased", work / "run", slurm.env, extra=settings))
        console.print(f"Slurm {cluster.version} is up; all of it is under {OUT.relative_to(ROOT)}/")
        yield cluster, gpu


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
    found = spans.picture(history.load(OUT / RECORD, []), jobs)
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


def named_lines(cluster: PrivateSlurm, jobs: list[int]) -> list[str]:
    """What sacct says of the jobs, once slurmdbd has heard of the start of each."""
    lines: list[str] = []

    def complete() -> bool:
        lines[:] = cluster.sacct_lines(jobs)
        return not any(line.split("|", 2)[1] == UNNAMED for line in lines)

    wait_until("sacct to know the jobs' names", complete, step=ASK_S)
    return lines


def main() -> int:
    options = parse_arguments()
    # A narrower terminal wraps lines, which is better than cutting them. ":on:" is no picture.
    console = Console(highlight=False, emoji=False)
    console.width = max(console.width, table.WIDTH)
    pace = QUICK if options.quick else FULL
    with started(options.gpu, console, options.policy) as (cluster, gpu):
        if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):  # set-up alone makes less
            console.print(f"[yellow]Other programs slow down this machine[/] ({load_words()})")
        demo = Demo(cluster, gpu, pace, console)
        run_all(demo)
        lines = named_lines(cluster, [job["job_id"] for job in demo.jobs])
        result = {
            "gpu": gpu.describe(),
            "policy": options.policy,
            "scenarios": demo.runs,
            "service": demo.services,
            "sacct": lines,
        }
    (OUT / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    turns = [job["job_id"] for run in demo.runs if is_drawn(run) for job in run["jobs"]]
    table.print_accounting(lines, turns[0], console)
    table.print_checks(demo.jobs, (OUT / "result.json").relative_to(ROOT), console)
    say_picture(turns, console)
    console.print(NEXT, markup=False)
    return 0 if all(job["checksum_ok"] for job in demo.jobs) else 1


def run_all(demo: Demo) -> None:
    """Everything that the demo shows, each as it is done."""
    total, per_byte = demo.calibrate()
    pace, gpu = demo.pace, demo.gpu.describe()
    workloads = {
        "heavy": heavy(total, per_byte, pace.phase_s, pace.steps),
        "light": light(total, per_byte, pace.kernel_s, pace.light_s),
    }
    table.print_times(gpu, demo.console)
    for name, rows in PLAN.items():
        table.print_workload(name, demo.console)
        for row in rows:
            demo.run(workloads[name], demo.modes[row])
    table.print_services(gpu, demo.console)
    for way in BESIDE:
        demo.serve(service(total, per_byte, pace.serves_s), batch(total, per_byte), way)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except StartError as fault:
        raise SystemExit(f"make demo: {fault}") from None

"""Two PyTorch jobs on one real GPU, submitted with sbatch to a real Slurm, and what sacct says.

`python -m tests.gpu.check_slurm` on a machine with a GPU and Slurm's programs, as
root: a private cluster, then `sbatch --gres=shard:1 --gpu-share=tq:2,lock:on` twice
at once, by turns beside a bare run. Prints sacct's lines; writes slurm.json in $OUT
or build/bench. Exit status 1 if a job failed or its weights differ from the bare run's.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.demo.demo import OUT, started
from tests.gpu import commands
from tests.gpu.jobs import ONE_GPU, ROOT, Job, show, write_report
from tests.slurm.cluster import PrivateSlurm

SHARE = "tq:2,lock:on"
STEPS = 9000
LIMIT_S = 120


def submit(cluster: PrivateSlurm, name: str, command: list[str]) -> tuple[int, Path]:
    """sbatch a command; its job id and where its output goes."""
    script, log = OUT / f"{name}.sh", OUT / f"{name}.log"
    script.write_text(f"#!/bin/sh\ncd {ROOT}\nexec {shlex.join(command)}\n")
    job_id = cluster.sbatch(
        *("--gres=shard:1", f"--gpu-share={SHARE}", f"--job-name={name}", "--time=5"),
        *(f"--output={log}", str(script)),
    )
    return job_id, log


def run_pair(cluster: PrivateSlurm, command: list[str]) -> dict[str, Any]:
    """Both jobs at once, to the end of their accounting."""
    submitted = [submit(cluster, f"torch-{n}", command) for n in (1, 2)]
    for job_id, _ in submitted:
        cluster.wait(job_id, timeout=LIMIT_S)
    rows = [cluster.accounting(job_id, usage=True) for job_id, _ in submitted]
    printed = [log.read_text().strip().splitlines() for _, log in submitted]
    return {
        "states": [row.state for row in rows],
        "usage": [row.usage for row in rows],
        "reports": [json.loads(lines[-1]) if lines else {} for lines in printed],
        "sacct": cluster.sacct_lines([job_id for job_id, _ in submitted]),
    }


def main() -> int:
    command = commands.workload("torch_eager", 0, STEPS)
    alone = Job.start("torch_eager, bare", command, ONE_GPU).result()
    with started("nvidia", Console(highlight=False)) as (cluster, _):
        found = run_pair(cluster, command)
    for line in found["sacct"]:
        print(line)
    digests = [report.get("digest") for report in found["reports"]]
    equal = all(digest == alone["digest"] for digest in digests)
    show("states", found["states"])
    show("weights equal to the bare run's", equal)
    write_report("slurm", found | {"bare": alone, "equal": equal})
    return 0 if equal and found["states"] == ["COMPLETED"] * 2 else 1


if __name__ == "__main__":
    sys.exit(main())

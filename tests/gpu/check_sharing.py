"""Sharing on a real NVIDIA GPU, without Slurm: one job alone, two at once, PyTorch bit-equal.

Run it on a machine with a GPU: `python -m tests.gpu.check_sharing`. Managed
memory stays at a few GiB: the device is capped to 4 GiB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.gpu import commands
from tests.gpu.jobs import ROOT, Job, Sharing, finish_all, python, sharing, show, stopping

JOB = ROOT / "tests" / "demo" / "job.py"
MEMORY = "4GiB"


def check_jobs(share: Sharing, work: Path) -> None:
    size = int(0.9 * (4 << 30) * 0.98)
    arguments = ["--bytes", str(size), "--piece", str(256 << 20), "--steps", "10"]
    arguments += ["--sweeps", "40", "--rounds", "8", "--cpu-ms", "200"]
    jobs = [
        share.tenant(
            f"job.py {n}",
            "tq:2,lock:on",
            python(str(JOB), *arguments, "--result", str(work / f"{n}")),
        )
        for n in range(2)
    ]
    with stopping(*jobs):
        show("two jobs, 0.9 of 4 GiB each, tq:2", [job.finish() for job in jobs])
    for job in jobs:
        show(f"  usage of {job.name}", share.usage(job))


def check_torch(share: Sharing, name: str, steps: int) -> None:
    command = commands.workload(name, 2.0, steps)
    alone = Job.start(f"{name}, bare", command).result()
    show(f"{name}, bare driver", alone)
    shared = share.tenant(f"{name}, interposed", "lock:on", command).result()
    show(f"{name}, interposed", shared)
    jobs = [share.tenant(f"{name} {n} of two", "tq:1,lock:on", command) for n in range(2)]
    pair = finish_all(jobs)
    show(f"{name}, two at once, tq:1", pair)
    for job in jobs:
        show(f"  usage of {job.name}", share.usage(job))
    for result in (shared, *pair):
        assert result["digest"] == alone["digest"], f"{name}: results differ"
    show("bit-equal", True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpul-") as directory, sharing(MEMORY) as share:
        check_jobs(share, Path(directory))
        check_torch(share, "torch_eager", 8000)
        check_torch(share, "torch_graph", 16000)
        show("status", share.devices())


if __name__ == "__main__":
    main()

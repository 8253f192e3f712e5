"""Sharing on a real NVIDIA GPU, without Slurm: one job alone, two at once, PyTorch bit-equal.

Run it on a machine with a GPU: `python -m tests.gpu.check_sharing`. Managed
memory stays at a few GiB: the device is capped to 4 GiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from leased.ctl import ask
from tests.slurm.leased import Leased

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tests" / "demo" / "job.py"
CAP = '[device]\nmemory = "4GiB"\n'


def tenant(admin: Path, job: int, options: str, *command: str) -> subprocess.Popen[str]:
    """Start a command as a job of its own."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.tenant", "--admin", str(admin), "--job", str(job)),
            *("--options", options, "--", sys.executable, *command),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(name: str, *processes: subprocess.Popen[str]) -> list[str]:
    """What they printed last; a failure ends the check."""
    outputs = [process.communicate(timeout=240) for process in processes]
    for process, (out, err) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise SystemExit(f"{name} failed ({process.returncode}):\n{out}\n{err[-3000:]}")
    return [out.strip().splitlines()[-1] for out, _ in outputs]


def show(name: str, value: Any) -> None:
    print(f"{name}: {json.dumps(value)}", flush=True)


def check_jobs(admin: Path, work: Path) -> None:
    size = int(0.9 * (4 << 30) * 0.98)
    arguments = ["--bytes", str(size), "--piece", str(256 << 20), "--steps", "10"]
    arguments += ["--sweeps", "40", "--rounds", "8", "--cpu-ms", "200"]
    jobs = [
        tenant(admin, 10 + n, "tq:2,lock:on", str(JOB), *arguments, "--result", str(work / f"{n}"))
        for n in range(2)
    ]
    show("two jobs, 0.9 of 4 GiB each, tq:2", finish("job.py", *jobs))
    for n in range(2):
        show(f"  usage {n}", ask(admin, {"op": "usage", "job_id": 10 + n})["usage"])


def check_torch(admin: Path) -> None:
    train = str(ROOT / "tests" / "gpu" / "train.py")
    bare = subprocess.run(
        [sys.executable, train], check=True, capture_output=True, text=True, env=os.environ
    )
    alone = json.loads(bare.stdout)
    show("PyTorch, bare driver", alone)
    shared = json.loads(finish("torch", tenant(admin, 20, "lock:on", train))[0])
    show("PyTorch, interposed", shared)
    pair = [tenant(admin, 21 + n, "tq:1,lock:on", train, "--steps", "20000") for n in range(2)]
    show("PyTorch, two at once, tq:1", [json.loads(text) for text in finish("torch", *pair)])
    for n in range(2):
        show(f"  usage {n}", ask(admin, {"op": "usage", "job_id": 21 + n})["usage"])
    for name in ("eager", "graph"):
        assert shared[name]["digest"] == alone[name]["digest"], f"{name}: results differ"
    show("bit-equal", True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpul-") as directory:
        work = Path(directory)
        with Leased(work, work / "run", os.environ, CAP) as leased:
            check_jobs(leased.admin_socket, work)
            check_torch(leased.admin_socket)
            show("status", ask(leased.admin_socket, {"op": "status"})["devices"])


if __name__ == "__main__":
    main()

"""Run a command as a job of its own, as the SPANK plugin would: for tests without Slurm.

`python -m tests.support.tenant --admin SOCKET --job N [--options TEXT] -- COMMAND...`:
this process registers as the slurmstepd of job N, and the command, its child,
gets the environment that the plugin would set. JOB_UID: the job's user, if it is not this one.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from leased.api.client import ask
from leased.base.errors import Refused

PR_SET_CHILD_SUBREAPER = 36


def register(
    admin: Path,
    job_id: int,
    options: str = "",
    gpus: list[int] | None = None,
    name: str = "",
    *,
    nodes: list[str] | None = None,
) -> dict[str, str]:
    """Register this process as the job's slurmstepd; returns the environment for its tasks. name:
    the job as squeue shows it; "": by its number. nodes: the job's; None: this one alone."""
    answer = ask(
        admin,
        {
            "op": "register",
            "job_id": job_id,
            "uid": int(os.environ.get("JOB_UID", os.getuid())),
            "nodes": len(nodes) if nodes else 1,
            "node_names": nodes or [],
            "shards": 1,
            "gpus": [0] if gpus is None else gpus,
            "options": options,
            "job": name or str(job_id),
        },
    )
    env: dict[str, str] = dict(answer["env"])
    before = os.environ.get("LD_PRELOAD")
    preload = answer["preload"]
    return env | {"LD_PRELOAD": f"{before}:{preload}" if before else preload}


def command(
    admin: Path | str,
    job: int,
    options: str,
    *program: str,
    gpus: str = "0",
    nodes: str = "",
    stays: bool = False,
) -> list[str]:
    """The command line that runs a program as the job. gpus: indices, and nodes: all names, if
    there are several; with commas between. stays: until it is killed."""
    return [
        *(sys.executable, "-m", "tests.support.tenant", "--admin", str(admin)),
        *("--job", str(job), "--options", options, "--gpus", gpus, "--nodes", nodes),
        *(["--stays"] if stays else []),
        *("--", *program),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--admin", type=Path, required=True)
    parser.add_argument("--job", type=int, required=True)
    parser.add_argument("--options", default="")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--nodes", default="", help="all names, if there are several")
    parser.add_argument("--stays", action="store_true", help="until it is killed")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    try:
        gpus = [int(text) for text in chosen.gpus.split(",")]
        nodes = list(filter(None, chosen.nodes.split(",")))
        env = register(chosen.admin, chosen.job, chosen.options, gpus, nodes=nodes)
    except Refused as fault:
        print(fault.sentence(), file=sys.stderr)
        return 1
    # What its tasks leave behind stays the job's, as in a job's cgroup.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    status = subprocess.run(chosen.command, check=False, env=os.environ | env).returncode
    while chosen.stays:
        signal.pause()
    return status


if __name__ == "__main__":
    raise SystemExit(main())

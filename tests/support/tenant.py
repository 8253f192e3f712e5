"""Run a command as a job of its own, as the SPANK plugin would: for tests without Slurm.

`python -m tests.support.tenant --admin SOCKET --job N [--options TEXT] -- COMMAND...`:
this process registers as the slurmstepd of job N, and the command, its child,
gets the environment that the plugin would set. JOB_UID: the job's user, if it is not this one.
All of that is done by tenant_program.py, which command() starts at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from leased.api.client import ask
from tests.support import tenant_program
from tests.support.children import children_of


def request(
    job_id: int, options: str, gpus: Sequence[int], name: str = "", nodes: Sequence[str] = ()
) -> dict[str, Any]:
    """What slurmstepd says of the job, but for its user."""
    return {
        "op": "register",
        "job_id": job_id,
        "nodes": len(nodes) or 1,
        "node_names": list(nodes),
        "shards": 1,
        "gpus": list(gpus),
        "options": options,
        "job": name or str(job_id),
    }


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
    asked = request(job_id, options, [0] if gpus is None else gpus, name, nodes or ())
    answer = ask(admin, asked | {"uid": int(os.environ.get("JOB_UID", os.getuid()))})
    return tenant_program.environment(answer)


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
    asked = request(job, options, list(map(int, gpus.split(","))), nodes=_names(nodes))
    # Without site packages, of which it needs none.
    words = (sys.executable, "-S", tenant_program.__file__, str(admin), json.dumps(asked))
    return [*words, "stays" if stays else "ends", *program]


def end_job(process: subprocess.Popen[str]) -> None:
    """Kill what stands for the job's slurmstepd, its program, which may wait at its gate and has
    our pipes, and what that has left behind in sessions of its own. It led a session."""
    with contextlib.suppress(OSError):
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _names(nodes: str) -> list[str]:
    return list(filter(None, nodes.split(",")))


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--admin", type=Path, required=True)
    parser.add_argument("--job", type=int, required=True)
    parser.add_argument("--options", default="")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--nodes", default="", help="all names, if there are several")
    parser.add_argument("--stays", action="store_true", help="until it is killed")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    words = command(
        *(chosen.admin, chosen.job, chosen.options, *chosen.command),
        gpus=chosen.gpus,
        nodes=chosen.nodes,
        stays=chosen.stays,
    )
    os.execv(words[0], words)


if __name__ == "__main__":
    main()

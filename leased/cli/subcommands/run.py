"""gpu-leasectl run: a program that can be saved and restored, in a job."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from leased.base.errors import Refused
from leased.cli import mine
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, WrongUsage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        required=True,
        type=Path,
        metavar="DIR",
        help="where it is saved, and from where it goes on; another one for each job",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="PROGRAM", help="with arguments"
    )


def run(chosen: argparse.Namespace) -> ExitStatus:
    """Its status is the program's. Refused: it cannot be started, or not restored."""
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if not command:
        raise WrongUsage("run which program?", "gpu-leasectl run --checkpoint DIR -- PROGRAM")
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        raise Refused("this is no job of Slurm", "use it in a batch script")
    from leased.saving.runner import Runner  # it brings an event loop

    socket = mine.tenant_socket(chosen.socket, chosen.config)
    sys.exit(Runner(chosen.checkpoint, socket, job).run(command))


subcommand = Subcommand(
    "run",
    "in a job: run a program that can be saved and goes on after a requeue",
    run,
    add_arguments,
)

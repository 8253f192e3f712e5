"""gpu-leasectl run: a program that can be saved and restored, in a job."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from leased.base import job_names
from leased.base.errors import Refused
from leased.cli import mine
from leased.cli.subcommand import WrongUsage

SUMMARY = "in a job: run a program that can be saved and goes on after a requeue"


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


def run(chosen: argparse.Namespace) -> None:
    """Its status is the program's. Refused: it cannot be started, or not restored."""
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if not command:
        raise WrongUsage("run which program?", "gpu-leasectl run --checkpoint DIR -- PROGRAM")
    names = job_names.own(os.environ)
    if not names:
        raise Refused("this is no job of Slurm", "use it in a batch script")
    from leased.saving.runner import Runner  # these bring an event loop
    from leased.saving.saver import Saver

    saver = Saver(mine.tenant_socket(chosen), int(os.environ["SLURM_JOB_ID"]))
    sys.exit(Runner(chosen.checkpoint, saver, names).run(command))

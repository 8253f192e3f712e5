"""gpu-leasectl checkpoint: a program of one of the user's jobs is saved to files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from leased.base.words import size
from leased.cli.subcommand import job_name, print_answer
from leased.saving.asking import ask_runner

SUMMARY = "save a program of one of your jobs to files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=job_name, metavar="JOB", help="one of your jobs")
    parser.add_argument("directory", type=Path, metavar="DIR", help="where; it has to be yours")
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="end the program then, and have Slurm requeue the job, which goes on from DIR",
    )


def run(chosen: argparse.Namespace) -> None:
    """Refused: it cannot be saved, and goes on."""
    directory = chosen.directory.absolute()
    request = {"directory": str(directory), "requeue": chosen.requeue}
    answer = ask_runner(str(chosen.job), request)
    print_answer(chosen, answer, lambda: _text(chosen, answer))


def _text(chosen: argparse.Namespace, answer: dict[str, Any]) -> str:
    then = "is requeued" if chosen.requeue else "goes on"
    return (
        f"job {chosen.job} is saved in {answer['directory']} in {answer['seconds']:.1f} s, with "
        f"{size(answer['bytes'])} of its GPU's memory, and {then}"
    )

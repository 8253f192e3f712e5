"""gpu-leasectl mine: the user's own jobs on this node."""

from __future__ import annotations

import argparse

from leased.cli import mine
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, job_name, print_answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        type=job_name,
        nargs="?",
        metavar="JOB",
        help="show only this job, also after its end",
    )


def run(chosen: argparse.Namespace) -> ExitStatus:
    path = mine.tenant_socket(chosen.socket, chosen.config)
    answer = mine.ask_mine(path, chosen.job)
    print_answer(chosen, answer, lambda: mine.text(answer))
    return ExitStatus.DONE


subcommand = Subcommand(
    "mine",
    "show your own jobs on this node, what they have and why they wait",
    run,
    add_arguments,
)

"""gpu-leasectl park: an own job's memory leaves its GPUs."""

from __future__ import annotations

import argparse

from leased.cli import mine
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, print_answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job_id", type=int, metavar="JOB")


def run(chosen: argparse.Namespace) -> ExitStatus:
    path = mine.tenant_socket(chosen.socket, chosen.config)
    answer = mine.ask_park(path, "park", chosen.job_id)
    print_answer(chosen, answer, lambda: mine.park_text(answer))
    return ExitStatus.DONE


subcommand = Subcommand(
    "park",
    "move all memory of an own job off its GPUs until its next launch",
    run,
    add_arguments,
)

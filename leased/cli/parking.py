"""What park and unpark have in common: both ask the daemon about one of the user's own jobs."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from leased.api import own_job_answers as answers
from leased.cli import mine
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, job_name, print_answer


def subcommand(op: str, summary: str, text: Callable[[answers.Mine], str]) -> Subcommand:
    """op: park or unpark, also the name of the subcommand. text: the answer for people."""

    def run(chosen: argparse.Namespace) -> ExitStatus:
        path = mine.tenant_socket(chosen.socket, chosen.config)
        answer: answers.Mine = mine.ask_own(path, op, job_id=chosen.job)
        print_answer(chosen, answer, lambda: text(answer))
        return ExitStatus.DONE

    return Subcommand(op, summary, run, _add_arguments)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", type=job_name, metavar="JOB", help="one of your jobs, or an array: all its tasks"
    )

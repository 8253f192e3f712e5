"""gpu-leasectl park: moves the memory of one of the user's jobs off its GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from leased.api import own_job_answers as answers
from leased.cli import mine
from leased.cli.subcommand import job_name, print_answer

SUMMARY = "move all memory of one of your jobs off its GPUs until its next launch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", type=job_name, metavar="JOB", help="one of your jobs, or an array: all its tasks"
    )


def run(chosen: argparse.Namespace) -> None:
    ask(chosen, "park", mine.park_text)


def ask(chosen: argparse.Namespace, op: str, text: Callable[[answers.Mine], str]) -> None:
    """Ask the daemon for this of one of the user's own jobs. text: the answer for people."""
    answer: answers.Mine = mine.ask_own(chosen, op, job_id=chosen.job)
    print_answer(chosen, answer, lambda: text(answer))

"""gpu-leasectl mine: the user's own jobs on this node."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap

from leased.cli import mine
from leased.cli.subcommand import job_name, print_answer

SUMMARY = "show your own jobs on this node, what they have and why they wait"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        type=job_name,
        nargs="?",
        metavar="JOB",
        help="show only this job, also after its end",
    )


def run(chosen: argparse.Namespace) -> None:
    which = {} if chosen.job is None else {"job_id": chosen.job}
    answer = mine.ask_own(chosen, "mine", **which)
    print_answer(chosen, answer, lambda: _fitting(mine.text(answer)))


def _fitting(text: str) -> str:
    """On a terminal no word is cut at its edge, and what goes on is indented."""
    if not sys.stdout.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(_fitting_line(line, columns) for line in text.split("\n"))


def _fitting_line(line: str, columns: int) -> str:
    further = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, columns, subsequent_indent=further, break_on_hyphens=False)

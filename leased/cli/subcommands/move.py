"""gpu-leasectl move: one of the user's jobs goes to another GPU of its node."""

from __future__ import annotations

import argparse
import time

from leased.api.client import Answer
from leased.base.errors import Refused
from leased.cli import mine
from leased.cli.subcommand import job_name, print_answer

SUMMARY = "move one of your jobs to another GPU of its node"

POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=job_name, metavar="JOB", help="one of your jobs")
    parser.add_argument("--to", required=True, metavar="GPU", help="its index or UUID")


def run(chosen: argparse.Namespace) -> None:
    """Refused: the job cannot move, or has stayed where it was."""
    answer = mine.ask_own(chosen, "move", job_id=chosen.job, gpu=chosen.to)
    while answer["state"] == "moving":
        time.sleep(POLL_S)
        answer = mine.ask_own(chosen, "moved", job_id=chosen.job)
    if answer["state"] != "moved":
        words = f"job {answer['job']} stays on GPU {answer['from']}: {answer['why']}"
        raise Refused(words, "it goes on there; docs/moving.md says what can be done")
    print_answer(chosen, answer, lambda: _text(answer))


def _text(answer: Answer) -> str:
    return (
        f"job {answer['job']} has moved from GPU {answer['from']} to GPU {answer['to']}; "
        f"it stood still for {answer['dead_s']:.2f} s, and its memory comes back now"
    )

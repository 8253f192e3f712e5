"""What several subcommands of gpu-leasectl need."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

from leased.api.client import Answer
from leased.base import job_names
from leased.base.errors import Refused
from leased.config import config


class ExitStatus(IntEnum):
    """Why gpu-leasectl ended; docs/gpu-leasectl.md lists them for scripts."""

    DONE = 0
    REFUSED = 1  # check: a fault was found
    USAGE = 2
    NO_ANSWER = 3
    TOO_LATE = 4
    INTERRUPTED = 130  # as shells have it for SIGINT


# For people, in --help and in the manual page.
MEANINGS = {
    ExitStatus.DONE: "done",
    ExitStatus.REFUSED: "refused; check: a fault was found",
    ExitStatus.USAGE: "wrong usage",
    ExitStatus.NO_ANSWER: "the daemon does not answer; report: slurmdbd does not",
    ExitStatus.TOO_LATE: "drain --wait: a job still holds the device after --timeout",
    ExitStatus.INTERRUPTED: "interrupted (top ends with 0)",
}


class WrongUsage(Refused):
    """The arguments make no sense together."""


def admin_socket(chosen: argparse.Namespace) -> Path:
    """Where the daemon listens. Refused: the configuration is at fault."""
    given: Path | None = chosen.socket
    return given or config.load(chosen.config).admin_socket


def print_answer(chosen: argparse.Namespace, answer: Any, text: Callable[[], object]) -> None:
    """Print the answer: as JSON if --json is given, else as text or as what rich can print."""
    if chosen.json:
        print(json.dumps(answer))
        return
    shown = text()
    if isinstance(shown, str):
        print(shown)
    else:
        from leased.cli import show

        show.say(shown)


def warn_unless_stored(answer: Answer) -> None:
    """Say so if a restart of the daemon would forget what has been set."""
    if answer["store_fault"]:
        print(f"gpu-leasectl: set, but not stored yet: {answer['store_fault']}", file=sys.stderr)


def gpus_of(answer: Answer) -> str:
    """The devices that an answer is about, for people."""
    return "GPU " + ", ".join(map(str, answer["devices"]))


def seconds(text: str) -> float:
    """A time above 0, as the type of an argument. ArgumentTypeError: it is none."""
    with suppress(ValueError):
        if 0 < (value := float(text)) < 1e9:
            return value
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of seconds above 0")


def job_name(text: str) -> str:
    """A job as squeue shows it, as the type of an argument. ArgumentTypeError: it is none."""
    if job_names.is_name(text):
        return text
    wrong = f"{text!r:.40} is not a job as squeue shows it, such as 7, 7_3 or 12+1"
    array, tasks, _ = text.partition("_[")
    job, step = job_names.split(text)
    if tasks and job_names.is_name(array):
        wrong = f"{text!r:.40} are tasks that have not begun: {array} is all that have, and "
        wrong += f"{array}_1 is one"
    elif step and job_names.is_name(job):
        wrong = f"{text!r:.40} is a step: {job} is its job, of which usage shows each step"
    raise argparse.ArgumentTypeError(wrong)

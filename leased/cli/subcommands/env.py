"""gpu-leasectl env: shell commands that make an ssh session's programs clients of its job."""

from __future__ import annotations

import argparse

from leased.cli import mine
from leased.cli.subcommand import print_answer

SUMMARY = "print the shell commands by which an ssh session can use its job's GPU"


def run(chosen: argparse.Namespace) -> None:
    answer = mine.ask_own(chosen, "env")
    commands = mine.env_text(answer)
    if commands or chosen.json:
        print_answer(chosen, answer, lambda: commands)

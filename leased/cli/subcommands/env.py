"""gpu-leasectl env: shell commands that make an ssh session's programs clients of its job."""

from __future__ import annotations

import argparse

from leased.cli import mine
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import print_answer

SUMMARY = "print the shell commands by which an ssh session can use its job's GPU"


def run(chosen: argparse.Namespace) -> ExitStatus:
    answer = mine.ask_own(mine.tenant_socket(chosen.socket, chosen.config), "env")
    commands = mine.env_text(answer)
    if commands or chosen.json:
        print_answer(chosen, answer, lambda: commands)
    return ExitStatus.DONE

"""gpu-leasectl status: what the daemon knows, once."""

from __future__ import annotations

import argparse

from leased.api.client import ask_status
from leased.cli.subcommand import admin_socket, print_answer

SUMMARY = "show the devices, who holds them and who waits, and what the site has set"


def run(chosen: argparse.Namespace) -> None:
    from leased.cli import show, slurm_commands, squeue
    from leased.cli.names import Names

    answer = ask_status(admin_socket(chosen))
    ask = squeue.asker(slurm_commands.environment(chosen.config))
    names = Names(ask, patient=True)
    print_answer(chosen, answer, lambda: show.status(answer, show.usual_view(names)))

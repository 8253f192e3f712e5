"""gpu-leasectl usage: what one job had of its GPUs."""

from __future__ import annotations

import argparse

from leased.api.client import ask
from leased.cli.subcommand import admin_socket, job_name, print_answer

SUMMARY = "show what a job had of the GPUs, also after its end"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", type=job_name, metavar="JOB", help="the job, as squeue shows it; it may have ended"
    )


def run(chosen: argparse.Namespace) -> None:
    from leased.cli import show_usage

    answer = ask(admin_socket(chosen), {"op": "usage", "job_id": chosen.job})
    print_answer(chosen, answer, lambda: show_usage.usage(answer))

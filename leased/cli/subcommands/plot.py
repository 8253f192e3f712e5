"""gpu-leasectl plot: a picture of who had the GPUs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from leased.api.client import ask_status
from leased.cli.subcommand import WrongUsage, admin_socket, print_answer

SUMMARY = "draw who held and waited for the GPUs, and their memory, from a record of the daemon"
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--from-record",
        **FILE,
        help="the record to draw (default: daemon.record of the configuration)",
    )
    add("-j", "--jobs", default="", metavar="JOBS", help="draw only these jobs, for example 7,12_3")
    add(
        "-S",
        "--since",
        metavar="TIME",
        help="draw only what happened since: 10m (ago), or 2026-11-23T13:30",
    )
    add("-o", "--output", required=True, **FILE, help="write the picture here: .svg, .png or .pdf")
    add(
        "--chain",
        metavar="NAME",
        help="draw instead the throughput of this chain over the trials of its last search, which "
        "the daemon knows",
    )
    add("--dark", action="store_true", help="use colors for a dark screen")
    parser.epilog = "See docs/gpu-leasectl.md."


def run(chosen: argparse.Namespace) -> None:
    from leased.cli import plot, plot_chain

    if chosen.chain is not None:
        _check_alone(chosen)
        answer = plot.plot_trials(chosen, ask_status(admin_socket(chosen)))
        print_answer(chosen, answer, lambda: plot_chain.text(answer))
    else:
        answer = plot.plot(chosen)
        print_answer(chosen, answer, lambda: plot.text(answer))


def _check_alone(chosen: argparse.Namespace) -> None:
    if chosen.from_record or chosen.jobs or chosen.since:
        raise WrongUsage(
            "--chain draws what the daemon knows", "leave out --from-record, -j and -S"
        )

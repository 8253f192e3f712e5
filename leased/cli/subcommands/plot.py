"""gpu-leasectl plot: a picture of who had the GPUs."""

from __future__ import annotations

import argparse
from pathlib import Path

from leased.api.client import ask_status
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import WrongUsage, admin_socket, print_answer

SUMMARY = "draw who held and waited for the GPUs, and their memory, from a record of the daemon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-record",
        type=Path,
        metavar="FILE",
        help="the record to draw (default: daemon.record of the configuration)",
    )
    parser.add_argument(
        "-j", "--jobs", default="", metavar="JOBS", help="draw only these jobs, for example 7,12_3"
    )
    parser.add_argument(
        "-S",
        "--since",
        metavar="TIME",
        help="draw only what happened since: 10m (ago), or 2026-11-23T13:30",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="write the picture here: .svg, .png or .pdf",
    )
    parser.add_argument(
        "--chain",
        metavar="NAME",
        help="draw instead the throughput of this chain over the trials of its last search, which "
        "the daemon knows",
    )
    parser.add_argument("--dark", action="store_true", help="use colors for a dark screen")
    parser.epilog = "See docs/gpu-leasectl.md."


def run(chosen: argparse.Namespace) -> ExitStatus:
    from leased.cli import plot, plot_chain

    if chosen.chain is not None:
        _check_alone(chosen)
        answer = plot.plot_trials(chosen, ask_status(admin_socket(chosen)))
        print_answer(chosen, answer, lambda: plot_chain.text(answer))
    else:
        answer = plot.plot(chosen)
        print_answer(chosen, answer, lambda: plot.text(answer))
    return ExitStatus.DONE


def _check_alone(chosen: argparse.Namespace) -> None:
    if chosen.from_record or chosen.jobs or chosen.since:
        raise WrongUsage(
            "--chain draws what the daemon knows", "leave out --from-record, -j and -S"
        )

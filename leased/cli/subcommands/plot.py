"""gpu-leasectl plot: a picture of who had the GPUs."""

from __future__ import annotations

import argparse
from pathlib import Path

from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, print_answer


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
    parser.add_argument("--dark", action="store_true", help="use colors for a dark screen")
    parser.epilog = "See docs/gpu-leasectl.md."


def run(chosen: argparse.Namespace) -> ExitStatus:
    from leased.cli import plot

    answer = plot.plot(chosen)
    print_answer(chosen, answer, lambda: plot.text(answer))
    return ExitStatus.DONE


subcommand = Subcommand(
    "plot",
    "draw who held and waited for the GPUs, and their memory, from a record of the daemon",
    run,
    add_arguments,
)

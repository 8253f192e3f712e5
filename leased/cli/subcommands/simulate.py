"""gpu-leasectl simulate: how jobs would fare under other settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from leased.cli.subcommand import print_answer

SUMMARY = "simulate jobs under other quanta, locks and policies, without a daemon or a GPU"
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    add = parser.add_argument
    source.add_argument(
        "trace",
        type=Path,
        nargs="?",
        metavar="TRACE",
        help="simulate the jobs that this TOML file describes",
    )
    source.add_argument(
        "--from-record", **FILE, help="simulate the jobs in this record of gpu-leased"
    )
    source.add_argument(
        "--from-usage",
        metavar="TIME",
        help="simulate the jobs since TIME (as for sacct) by their sums in Slurm's accounting",
    )
    add("--node", help="with --from-usage: jobs of this node")
    add(
        "--gpu-memory",
        metavar="SIZE",
        help="with --from-usage: how much of a GPU's memory jobs can have",
    )
    add(
        "--print-trace",
        action="store_true",
        help="do not simulate, but print the jobs as a trace (TOML)",
    )
    add("--tq", metavar="LIST", help="quanta to try, for example 2,5,30,2m")
    add("--lock", metavar="LIST", help="locks to try, for example on,auto")
    add("--move-idle", action="store_true", help="jobs move to idle GPUs (limits.move_idle)")
    add("--policy", metavar="LIST", help="policies to try, for example fcfs,fair")
    add(
        "--jobs", action="store_true", help="print a table of the jobs for each combination as well"
    )
    parser.epilog = "Each job keeps its own value of what is left out. See docs/simulate.md."


def run(chosen: argparse.Namespace) -> None:
    from leased.cli import simulate

    answer, text = simulate.simulate(chosen)
    print_answer(chosen, answer, text)

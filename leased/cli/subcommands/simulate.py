"""gpu-leasectl simulate: how jobs would fare under other settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import print_answer

SUMMARY = "simulate jobs under other quanta, locks and policies, without a daemon or a GPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "trace",
        type=Path,
        nargs="?",
        metavar="TRACE",
        help="simulate the jobs that this TOML file describes",
    )
    source.add_argument(
        "--from-record",
        type=Path,
        metavar="FILE",
        help="simulate the jobs in this record of gpu-leased",
    )
    source.add_argument(
        "--from-usage",
        metavar="TIME",
        help="simulate the jobs since TIME (as for sacct) by their sums in Slurm's accounting",
    )
    parser.add_argument("--node", help="with --from-usage: jobs of this node")
    parser.add_argument(
        "--gpu-memory",
        metavar="SIZE",
        help="with --from-usage: how much of a GPU's memory jobs can have",
    )
    parser.add_argument(
        "--print-trace",
        action="store_true",
        help="do not simulate, but print the jobs as a trace (TOML)",
    )
    parser.add_argument("--tq", metavar="LIST", help="quanta to try, for example 2,5,30,2m")
    parser.add_argument("--lock", metavar="LIST", help="locks to try, for example on,auto")
    parser.add_argument(
        "--move-idle", action="store_true", help="jobs move to idle GPUs (limits.move_idle)"
    )
    parser.add_argument("--policy", metavar="LIST", help="policies to try, for example fcfs,fair")
    parser.add_argument(
        "--jobs", action="store_true", help="print a table of the jobs for each combination as well"
    )
    parser.epilog = "Each job keeps its own value of what is left out. See docs/simulate.md."


def run(chosen: argparse.Namespace) -> ExitStatus:
    from leased.cli import simulate

    answer, text = simulate.simulate(chosen)
    print_answer(chosen, answer, text)
    return ExitStatus.DONE

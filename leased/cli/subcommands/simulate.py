"""gpu-leasectl simulate: what other settings would make of described jobs."""

from __future__ import annotations

import argparse
from pathlib import Path

from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, print_answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "trace", type=Path, nargs="?", metavar="TRACE", help="jobs as a TOML file describes them"
    )
    source.add_argument(
        "--from-record", type=Path, metavar="FILE", help="jobs as a record of gpu-leased saw them"
    )
    source.add_argument(
        "--from-usage",
        metavar="TIME",
        help="jobs since then (as sacct has it) as Slurm's accounting knows them: sums",
    )
    parser.add_argument("--node", help="of --from-usage, where jobs ran on several")
    parser.add_argument(
        "--gpu-memory", metavar="SIZE", help="of --from-usage: what jobs can have of a GPU"
    )
    parser.add_argument(
        "--print-trace", action="store_true", help="simulate nothing: print the jobs as a trace"
    )
    parser.add_argument("--tq", metavar="LIST", help="quanta to try, for example 2,5,30,2m")
    parser.add_argument("--lock", metavar="LIST", help="locks to try, for example on,auto")
    parser.add_argument("--policy", metavar="LIST", help="policies to try, for example fcfs,fair")
    parser.add_argument("--jobs", action="store_true", help="a table of the jobs for each as well")
    parser.epilog = "What is not said is as each job asks. See docs/simulate.md."


def run(chosen: argparse.Namespace) -> ExitStatus:
    from leased.cli import simulate

    answer, text = simulate.simulate(chosen)
    print_answer(chosen, answer, text)
    return ExitStatus.DONE


subcommand = Subcommand(
    "simulate",
    "what quanta, locks and policies would make of jobs: simulated, without a daemon or a GPU",
    run,
    add_arguments,
)

"""gpu-leasectl simulate: what other settings would make of described jobs."""

from __future__ import annotations

import argparse

from leased.cli import simulate
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, print_answer


def run(chosen: argparse.Namespace) -> ExitStatus:
    answer, text = simulate.simulate(chosen)
    print_answer(chosen, answer, text)
    return ExitStatus.DONE


subcommand = Subcommand("simulate", simulate.WORDS, run, simulate.add_arguments)

"""gpu-leasectl plot: a picture of who had the GPUs."""

from __future__ import annotations

import argparse

from leased.cli import plot
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, print_answer


def run(chosen: argparse.Namespace) -> ExitStatus:
    answer = plot.plot(chosen)
    print_answer(chosen, answer, lambda: plot.text(answer))
    return ExitStatus.DONE


subcommand = Subcommand("plot", plot.WORDS, run, plot.add_arguments)

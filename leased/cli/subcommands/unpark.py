"""gpu-leasectl unpark: a parked job's memory comes back to its GPUs."""

from __future__ import annotations

import argparse

from leased.cli import mine
from leased.cli.subcommands import park

SUMMARY = "bring back the memory of a parked job, as far as there is room"
add_arguments = park.add_arguments


def run(chosen: argparse.Namespace) -> None:
    park.ask(chosen, "unpark", mine.unpark_text)

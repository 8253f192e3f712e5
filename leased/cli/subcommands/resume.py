"""gpu-leasectl resume: a drained GPU takes jobs again."""

from __future__ import annotations

import argparse

from leased.api.client import ask
from leased.cli.subcommand import admin_socket, gpus_of, print_answer, warn_unless_stored

SUMMARY = "put a drained device back into use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", metavar="DEVICE", help="its index or UUID, or all")


def run(chosen: argparse.Namespace) -> None:
    answer = ask(admin_socket(chosen), {"op": "resume", "device": chosen.device})
    print_answer(chosen, answer, lambda: f"{gpus_of(answer)}: resumed")
    warn_unless_stored(answer)

"""gpu-leasectl top: the status again and again."""

from __future__ import annotations

import argparse
import contextlib

from leased.api.client import ask_status
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand, admin_socket, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="show it once")
    parser.add_argument("--interval", type=positive, default=1.0, metavar="SECONDS")


def run(chosen: argparse.Namespace) -> ExitStatus:
    with contextlib.suppress(KeyboardInterrupt):  # this is how its user ends it
        from leased.cli import top

        path = admin_socket(chosen)
        top.run(
            lambda: ask_status(path),
            once=chosen.once,
            as_json=chosen.json,
            interval_s=chosen.interval,
        )
    return ExitStatus.DONE


subcommand = Subcommand(
    "top",
    "status, refreshed until interrupted; with --json one line each time",
    run,
    add_arguments,
)

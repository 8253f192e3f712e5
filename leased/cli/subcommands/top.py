"""gpu-leasectl top: the status again and again."""

from __future__ import annotations

import argparse
import contextlib

from leased.api.client import ask, ask_status
from leased.cli.subcommand import admin_socket, gpus_of, seconds

SUMMARY = "show the status again and again until interrupted; with --json one line each time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="show the status once, and end")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="the time between two updates (default: 1)",
    )


def run(chosen: argparse.Namespace) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # this is how its user ends it
        from leased.cli import slurm_commands, squeue, top
        from leased.cli.names import Names
        from leased.cli.top_state import Order

        path = admin_socket(chosen)

        def act(order: Order) -> str:
            answer = ask(path, {"op": order.op, "device": order.device})
            warn = f" (not stored yet: {answer['store_fault']})" if answer["store_fault"] else ""
            return f"{gpus_of(answer)}: told to {order.op}{warn}"

        ask_names = squeue.asker(slurm_commands.environment(chosen.config))
        top.run(
            lambda: ask_status(path),
            once=chosen.once,
            as_json=chosen.json,
            interval_s=chosen.interval,
            act=act,
            names=Names(ask_names, patient=chosen.once),
        )

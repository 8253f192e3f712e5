"""gpu-leasectl drain: take a GPU out of use."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from leased.api.answers import Called
from leased.api.client import ask, ask_status
from leased.base.words import named
from leased.cli.subcommand import admin_socket, gpus_of, print_answer, seconds, warn_unless_stored

SUMMARY = (
    "take a device out of use: its holder goes on to the end of its quantum, then no job gets it"
)

POLL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="return when no job holds it any more")
    parser.add_argument(
        "--timeout", type=seconds, default=600.0, metavar="SECONDS", help="the longest wait (600)"
    )
    parser.add_argument("device", metavar="DEVICE", help="its index or UUID, or all")


def run(chosen: argparse.Namespace) -> None:
    """TimeoutError: with --wait a job still holds it."""
    path = admin_socket(chosen)
    answer = ask(path, {"op": "drain", "device": chosen.device})
    warn_unless_stored(answer)
    holders = _await_drained(path, answer["devices"], chosen.timeout if chosen.wait else 0.0)
    answer["holders"] = list(holders)
    if holders and chosen.wait:
        still = "still holds it" if len(holders) == 1 else "still hold it"
        raise TimeoutError(
            f"{gpus_of(answer)}: {named(list(holders.values()))} {still} after "
            f"{chosen.timeout:g} s; it stays out of use for others: wait longer, or cancel jobs"
        )
    state = "draining" if holders else "drained"
    print_answer(chosen, answer, lambda: f"{gpus_of(answer)}: {state}")


def _await_drained(path: Path, indices: list[int], timeout_s: float) -> dict[int, str]:
    """Jobs that still hold one of these devices, after at most so many seconds, and their names."""
    end = time.monotonic() + timeout_s
    while True:
        status = ask_status(path)
        holders = {job for d in status["devices"] if d["index"] in indices for job in d["holders"]}
        left = end - time.monotonic()
        if not holders or left <= 0:
            called = Called(status["tenants"])
            return {job: called[job] for job in sorted(holders)}
        time.sleep(min(POLL_S, left))

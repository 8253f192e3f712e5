"""gpu-leasectl oci: give a container of a sharing job the interposer and the daemon's socket."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from leased.api import own_job_answers as answers
from leased.base.errors import Refused
from leased.cli import mine, oci
from leased.cli.exit_status import ExitStatus
from leased.cli.subcommand import Subcommand


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="change the config.json there, instead of standard input to standard output",
    )


def ask(chosen: argparse.Namespace) -> answers.Env:
    """What this process's job needs; nothing, with a warning, where the daemon does not answer: no
    container is kept from its start by us."""
    try:
        return mine.ask_env(mine.tenant_socket(chosen.socket, chosen.config))
    except Refused as fault:
        print(
            f"gpu-leasectl: this container gets no lease of a shared GPU: {fault.sentence()}",
            file=sys.stderr,
        )
        return {"job_id": None}


def run(chosen: argparse.Namespace) -> ExitStatus:
    if chosen.directory is None:
        config = oci.parse(sys.stdin.buffer.read(oci.LONGEST + 1))
        print(json.dumps(oci.with_lease(config, ask(chosen))))
        return ExitStatus.DONE
    config = oci.read_file(chosen.directory)
    changed = oci.with_lease(config, ask(chosen))
    if changed != config:
        oci.write_file(chosen.directory, changed)
    return ExitStatus.DONE


subcommand = Subcommand(
    "oci",
    "give the configuration of a container in a sharing job what its lease needs (for hooks)",
    run,
    add_arguments,
)

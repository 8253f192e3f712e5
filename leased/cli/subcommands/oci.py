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

SUMMARY = "add to a container's configuration what its job needs to share GPUs (for hooks)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="change DIR/config.json; without this, standard input is changed to standard output",
    )


def ask(chosen: argparse.Namespace) -> answers.Env:
    """What this process's job needs. If the daemon does not answer: nothing, with a warning, since
    no container may fail to start because of us."""
    try:
        path = mine.tenant_socket(chosen.socket, chosen.config)
        answer: answers.Env = mine.ask_own(path, "env")
    except Refused as fault:
        print(
            f"gpu-leasectl: this container gets no lease of a shared GPU: {fault.sentence()}",
            file=sys.stderr,
        )
        return {"job_id": None}
    return answer


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

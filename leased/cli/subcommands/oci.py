"""gpu-leasectl oci: adds to the configuration of an OCI container what its job's lease needs.

Container runtimes (podman, crun, runc, Slurm's --container) start a container from a file
config.json, as the OCI runtime specification describes it. A container that is started in a job
that shares a GPU gets the interposer, the directory of the daemon's socket, and the two variables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from leased.api import own_job_answers as answers
from leased.base.errors import Refused
from leased.cli import mine
from leased.cli.mine import PRELOAD

SUMMARY = "add to a container's configuration what its job needs to share GPUs (for hooks)"

SOCKET = "GPU_LEASE_SOCKET"
LONGEST = 16 << 20  # bytes of a configuration
READ_ONLY = ["bind", "ro", "nosuid", "nodev"]

Config = dict[str, Any]


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
        answer: answers.Env = mine.ask_own(chosen, "env")
    except Refused as fault:
        print(
            f"gpu-leasectl: this container gets no lease of a shared GPU: {fault.sentence()}",
            file=sys.stderr,
        )
        return {"job_id": None}
    return answer


def run(chosen: argparse.Namespace) -> None:
    if chosen.directory is None:
        config = parse(sys.stdin.buffer.read(LONGEST + 1))
        print(json.dumps(with_lease(config, ask(chosen))))
        return
    config = read_file(chosen.directory)
    changed = with_lease(config, ask(chosen))
    if changed != config:
        write_file(chosen.directory, changed)


def parse(text: bytes) -> Config:
    """Refused: this is not the configuration of a container."""
    try:
        if len(text) > LONGEST:
            raise ValueError(f"more than {LONGEST >> 20} MiB")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as fault:
        words = f"this is not the configuration of an OCI container: {fault}"
        raise Refused(words, "give a config.json as container runtimes read it") from None
    return found


def with_lease(config: Config, answer: answers.Env) -> Config:
    """The configuration with what a job's container needs. answer: the daemon's, for that job.

    Variables that it sets, and mounts at the same place, stay as they are.
    """
    process = config.get("process")
    if answer["job_id"] is None or not isinstance(process, dict):
        return config
    variables = [text for text in _list(process, "env") if isinstance(text, str)]
    mounts = [mount for mount in _list(config, "mounts") if isinstance(mount, dict)]
    preload = answer["preload"]
    socket = answer["env"][SOCKET]
    places = [mount.get("destination") for mount in mounts]
    added = [p for p in (preload, str(Path(socket).parent)) if p not in places]
    return config | {
        "process": process | {"env": _variables(variables, answer["env"], preload)},
        "mounts": [*mounts, *map(_mount, added)],
    }


def _list(of: Config, name: str) -> list[Any]:
    """The list of that name; an empty one if something else is there."""
    found = of.get(name)
    return found if isinstance(found, list) else []


def _mount(path: str) -> dict[str, Any]:
    """A mount at the same place as on the host. The directory of the socket is mounted, since a
    restarted daemon makes the socket anew."""
    return {"destination": path, "type": "bind", "source": path, "options": READ_ONLY}


def _variables(there: Iterable[str], wanted: dict[str, str], preload: str) -> list[str]:
    """The variables; if a name occurs twice the last one counts."""
    values = dict(text.partition("=")[::2] for text in there)
    libraries = values.get(PRELOAD, "")
    if preload not in libraries.replace(" ", ":").split(":"):
        values[PRELOAD] = f"{libraries}:{preload}" if libraries else preload
    return [f"{name}={value}" for name, value in (values | wanted).items()]


def read_file(directory: Path) -> Config:
    """The configuration in a directory. Refused: there is none that can be used."""
    try:
        with (directory / "config.json").open("rb") as file:
            return parse(file.read(LONGEST + 1))
    except OSError as fault:
        words = f"{directory}/config.json cannot be read ({fault.strerror})"
        raise Refused(words, "name the directory of a container's config.json") from None


def write_file(directory: Path, config: Config) -> None:
    """Replace the configuration in a directory as a whole. Refused: it cannot be written."""
    path = directory / "config.json"
    try:
        before = path.stat()
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
            new = Path(file.name)
            try:
                json.dump(config, file)
                file.flush()
                # Not by its name, in a directory that others may write to.
                os.fchmod(file.fileno(), before.st_mode & 0o777)
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                new.replace(path)
            except OSError:
                new.unlink()
                raise
    except OSError as fault:
        raise Refused(
            f"{path} cannot be written ({fault.strerror})", "give yourself the right to write it"
        ) from None

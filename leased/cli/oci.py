"""gpu-leasectl oci: what the configuration of an OCI container lacks for its job's lease.

Container runtimes (podman, crun, runc, Slurm's --container) start a container from a file
config.json, as the OCI runtime specification describes it. A container that is started in a job
that shares a GPU gets the interposer, the directory of the daemon's socket, and the two variables.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from leased.api import own_job_answers as answers
from leased.base.errors import Refused
from leased.cli.mine import PRELOAD

SOCKET = "GPU_LEASE_SOCKET"
LONGEST = 16 << 20  # bytes of a configuration
READ_ONLY = ["bind", "ro", "nosuid", "nodev"]

Config = dict[str, Any]


def parse(text: bytes) -> Config:
    """Refused: it is no configuration of a container."""
    try:
        if len(text) > LONGEST:
            raise ValueError(f"more than {LONGEST >> 20} MiB")
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as fault:
        raise Refused(
            f"this is no configuration of an OCI container: {fault}",
            "give a config.json as container runtimes read it",
        ) from None
    return found


def with_lease(config: Config, answer: answers.Env) -> Config:
    """The configuration with what a job's container needs. answer: the daemon's, for that job.

    What it has already stays as it is: a variable, and a mount at the same place.
    """
    process = config.get("process")
    if answer["job_id"] is None or not isinstance(process, dict):
        return config
    variables = [text for text in process.get("env") or [] if isinstance(text, str)]
    mounts = [mount for mount in config.get("mounts") or [] if isinstance(mount, dict)]
    preload = answer["preload"]
    socket = answer["env"][SOCKET]
    places = {mount.get("destination") for mount in mounts}
    added = [p for p in (preload, str(Path(socket).parent)) if p not in places]
    return config | {
        "process": process | {"env": _variables(variables, answer["env"], preload)},
        "mounts": [*mounts, *map(_mount, added)],
    }


def _mount(path: str) -> dict[str, Any]:
    """At the same place as on the host. The socket's directory, since a daemon may make it anew."""
    return {"destination": path, "type": "bind", "source": path, "options": READ_ONLY}


def _variables(there: Iterable[str], wanted: dict[str, str], preload: str) -> list[str]:
    """The variables, where the last of a name counts."""
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
        raise Refused(
            f"{directory}/config.json cannot be read ({fault.strerror})",
            "name the directory of a container's config.json",
        ) from None


def write_file(directory: Path, config: Config) -> None:
    """Replace the configuration in a directory as a whole. Refused: it cannot be written."""
    path = directory / "config.json"
    try:
        mode = path.stat().st_mode & 0o777
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
            json.dump(config, file)
        new = Path(file.name)
        new.chmod(mode)
        new.replace(path)
    except OSError as fault:
        raise Refused(
            f"{path} cannot be written ({fault.strerror})", "give yourself the right to write it"
        ) from None

"""What crun and runc do with a bundle, with namespaces in their place: `python -m
tests.containers.oci BUNDLE` runs what its config.json says. Mounts of it are all binds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.containers import namespaces
from tests.containers.namespaces import Mount


def config(
    root: Path, *, uid: int, mounts: list[Mount], env: dict[str, str], words: list[str]
) -> dict[str, Any]:
    """A bundle's config.json for a user, who is root in the container."""
    maps = [{"containerID": 0, "hostID": uid, "size": 1}]
    kinds = ("mount", "user", "pid", "ipc", "uts")
    binds = [
        {"destination": m.place, "source": m.source, "type": "bind", "options": ["rbind", "rw"]}
        for m in mounts
    ]
    proc = {"destination": "/proc", "type": "proc", "source": "proc"}
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": words,
            "env": [f"{name}={value}" for name, value in env.items()],
            "cwd": "/",
        },
        "root": {"path": str(root)},
        "mounts": [proc, *binds],
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds],
            "uidMappings": maps,
            "gidMappings": maps,
        },
    }


def main() -> None:
    said = json.loads((Path(sys.argv[1]) / "config.json").read_text())
    process = said["process"]
    command = namespaces.command(
        Path(said["root"]["path"]),
        process["args"],
        mounts=[
            Mount(m["source"], m["destination"]) for m in said["mounts"] if m["type"] == "bind"
        ],
        env=dict(text.partition("=")[::2] for text in process["env"]),
        namespaces=namespaces.USERS,
    )
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

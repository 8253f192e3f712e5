"""What enroot's and pyxis' documents say they do with hooks, mounts and the environment, with
namespaces in their place: `python -m tests.containers.enroot [--pyxis] HOOK ROOT COMMAND...`.

From enroot's doc/configuration.md and doc/image-format.md: a hook has the host's environment, finds
the root in ENROOT_ROOTFS, and adds to the files ENROOT_MOUNTS (as fstab) and ENROOT_ENVIRON; the
container has the environment of that file alone. Pyxis starts enroot with the job's environment but
for LD_PRELOAD and the like; a task then has the job's environment with the container's over it.
The image's own environment is in its /etc/environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.containers import namespaces
from tests.containers.namespaces import Mount

DENIED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")


def mounts_of(text: str) -> list[Mount]:
    """The mounts of a file, which are all binds."""
    rows = [line.split() for line in text.splitlines()]
    assert all("bind" in row[3].split(",") for row in rows), text
    assert all(row[3].startswith("x-create=") for row in rows), text
    return [Mount(row[0], row[1]) for row in rows]


def variables_of(text: str) -> dict[str, str]:
    """As enroot reads them: what is no variable is left out."""
    found = re.findall(r"^([A-Za-z_]\w*)=(.*)$", text, re.MULTILINE)
    return {name: value for name, value in found if not name.startswith("ENROOT_")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pyxis", action="store_true")
    parser.add_argument("--mount", action="append", default=[], help="as enroot start --mount")
    parser.add_argument("hook", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    job = dict(os.environ)
    with tempfile.TemporaryDirectory() as place:
        mounts, environ = Path(place) / "fstab", Path(place) / "environment"
        mounts.touch()
        image = chosen.root / "etc" / "environment"
        environ.write_text(image.read_text() if image.exists() else "")
        seen = {n: v for n, v in job.items() if n not in DENIED} if chosen.pyxis else job
        seen |= {"PATH": os.environ["PATH"], "ENROOT_ROOTFS": str(chosen.root)}
        seen |= {"ENROOT_MOUNTS": str(mounts), "ENROOT_ENVIRON": str(environ)}
        seen |= {"PYXIS_RUNTIME_PATH": place} if chosen.pyxis else {}
        subprocess.run([chosen.hook], env=seen, check=True)
        inside = variables_of(environ.read_text())
        wanted = mounts_of(mounts.read_text()) + [Mount(*m.split(":")) for m in chosen.mount]
    env = (job if chosen.pyxis else {}) | inside
    start = namespaces.command(
        chosen.root, chosen.command, mounts=wanted, env=env, namespaces=namespaces.USERS
    )
    os.execvp(start[0], start)


if __name__ == "__main__":
    main()

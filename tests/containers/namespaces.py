"""A container of nothing but namespaces: what stands in for runtimes that cannot be had here.

Any user may start one, as with rootless runtimes: the root file system is put together on a tmpfs
of the container's own, and what is mounted into it gets its place there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

USERS = ("--user", "--map-root-user")
PIDS = ("--pid", "--fork", "--mount-proc")
# $1: the root; then pairs of a path of the host and its place; then "--" and the command.
SCRIPT = r"""
set -e
root=$1; shift
new=/mnt
mount -t tmpfs container $new
for entry in "$root"/*; do
	name=$new/${entry##*/}
	if [ ! -d "$entry" ]; then
		touch "$name"; mount --bind "$entry" "$name"
	elif [ -z "$(ls -A "$entry")" ]; then
		mkdir "$name"
	else
		mkdir "$name"; mount --rbind "$entry" "$name"
	fi
done
mount --rbind /proc $new/proc
touch $new/dev/null; mount --bind /dev/null $new/dev/null
while [ "$1" != -- ]; do
	if [ -d "$1" ]; then mkdir -p "$new$2"; else mkdir -p "$new${2%/*}"; touch "$new$2"; fi
	mount --bind "$1" "$new$2"
	shift 2
done
shift
exec chroot $new "$@"
"""


@dataclass(frozen=True)
class Mount:
    """What of the host a container has, and where. FileNotFoundError: the host has no such file."""

    source: str
    place: str

    def __post_init__(self) -> None:
        Path(self.source).stat()


def command(
    root: Path,
    words: Sequence[str],
    *,
    mounts: Sequence[Mount] = (),
    env: Mapping[str, str],
    namespaces: Sequence[str] = (*USERS, *PIDS),
) -> list[str]:
    """What runs the words in a container, with this environment and no other."""
    pairs = [path for mount in mounts for path in (mount.source, mount.place)]
    variables = [f"{name}={value}" for name, value in env.items()]
    start = ["env", "-i", "unshare", "--mount", *namespaces, "sh", "-c", SCRIPT, "sh", str(root)]
    return [*start, *pairs, "--", "/bin/env", *variables, *words]


def required() -> None:
    """Skip the test where the kernel lets no ordinary user have namespaces."""
    words = ["unshare", "--mount", *USERS, *PIDS, "mount", "-t", "tmpfs", "x", "/mnt"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, user="nobody")
    if done.returncode:
        pytest.skip(f"users may have no namespaces here: {done.stderr.strip()}")

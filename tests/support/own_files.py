"""Nodes on one machine, each with its own files at a path that is the same on all of them."""

from __future__ import annotations

from pathlib import Path

BOUND = 'mount --bind "$0" "$1" && shift && exec "$@"'


def own_files(own: Path, here: Path) -> list[str]:
    """What a command begins with that finds the files of `own` at `here`; as root."""
    return ["unshare", "--mount", "sh", "-c", BOUND, str(own), str(here)]

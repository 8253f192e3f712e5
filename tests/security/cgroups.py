"""Cgroups for tests: a private one of version 2, part of which belongs to another user."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.processes import procfs
from tests.slurm.processes import wait_until


def mounted() -> Path | None:
    """Where the hierarchy of version 2 is; None: this machine has none."""
    for line in Path("/proc/self/mounts").read_bytes().split(b"\n"):
        fields = line.split(b" ")
        if len(fields) > 2 and fields[2] == b"cgroup2":
            return Path(os.fsdecode(fields[1]))
    return None


def remove(place: Path) -> None:
    """With all below it. Processes that end are in their cgroup for another moment."""
    for below, _, _ in os.walk(place, topdown=False):
        wait_until(f"{below} to be empty", functools.partial(_removed, Path(below)))


def _removed(place: Path) -> bool:
    try:
        place.rmdir()
    except OSError as fault:
        if fault.errno == errno.EBUSY:
            return False
        raise
    return True


@contextlib.contextmanager
def private() -> Iterator[Path]:
    """A cgroup of root's that is gone afterwards; skips the test where none can be made."""
    top = mounted()
    if top is None or os.getuid() != 0:
        pytest.skip("making cgroups needs root and a hierarchy of version 2")
    own = next(c.path for c in procfs.cgroups(os.getpid()) or () if not c.controllers)
    place = top / os.fsdecode(own).lstrip("/") / f"gpul-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as fault:
        pytest.skip(f"no cgroup can be made here: {fault}")
    try:
        yield place
    finally:
        remove(place)


def delegate(place: Path, uid: int) -> Path:
    """Give a cgroup to a user, as systemd does with user@UID.service."""
    place.mkdir(parents=True, exist_ok=True)
    for path in (place, place / "cgroup.procs"):
        shutil.chown(path, uid)
    return place

"""Cgroups for tests, of version 2 or of whichever this machine lends."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leased.processes import procfs
from tests.slurm.processes import wait_until

CGROUPS = Path("/sys/fs/cgroup")


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


@contextlib.contextmanager
def one_with(file: str, hierarchies: Sequence[str], below: str = "") -> Iterator[Path]:
    """A cgroup that has such a file, with another one below it, and is gone afterwards. Skips the
    test where none can be made.

    hierarchies: by their folders in CGROUPS; the first one that has such cgroups counts.
    """
    why = "no cgroups are mounted"
    for mount in (CGROUPS / folder for folder in hierarchies):
        if not (mount / "cgroup.procs").exists():
            continue  # a folder like others
        place = mount / f"gpul-{uuid.uuid4().hex[:8]}"
        try:
            (place / below).mkdir(parents=True)
        except OSError as fault:
            why = str(fault)
            continue
        try:
            if (place / file).exists():
                yield place
                return
            why = "the controller is not delegated"
        finally:
            remove(place)
    pytest.skip(f"no cgroup with {file} can be made here: {why}")


@contextlib.contextmanager
def memory_cgroup(mib: int) -> Iterator[Path]:
    """A memory cgroup with so much room. Skips where this machine lends none."""
    v1 = (CGROUPS / "memory").is_dir()
    limit, hierarchy = ("memory.limit_in_bytes", "memory") if v1 else ("memory.max", "")
    with one_with(limit, [hierarchy]) as group:
        (group / limit).write_text(str(mib << 20))
        yield group


def delegate(place: Path, uid: int) -> Path:
    """Give a cgroup to a user, as systemd does with user@UID.service."""
    place.mkdir(parents=True, exist_ok=True)
    for path in (place, place / "cgroup.procs"):
        shutil.chown(path, uid)
    return place

"""What the keeper is charged for, and whose the pages are that are not free."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from leased.copies.memory_file import MemoryFile
from leased.copies.own_cgroup import Charge, OwnCgroup
from leased.copies.unfreed import MIB, NOBODY, SLACK, Owner, Unfreed

V1 = {
    "memory.usage_in_bytes": "1000",
    "memory.kmem.usage_in_bytes": "100",
    "memory.stat": "cache 500\nrss 200\nswap 50",
}
V2 = {
    "memory.current": "1000",
    "memory.swap.current": "50",
    "memory.stat": "anon 200\nfile 500\nkernel 90\nsock 10\nslab 70",
}
OLD_V2 = V2 | {"memory.stat": "anon 200\nfile 500\nslab 70\npagetables 20\nsock 10"}
FIRST, SECOND = (7, 1000), (8, 1001)


def group(folder: Path, files: dict[str, str], *, v2: bool) -> OwnCgroup:
    for name, text in ({"cgroup.procs": str(os.getpid())} | files).items():
        (folder / name).write_text(text)
    return OwnCgroup(folder, v2)


@pytest.mark.parametrize(("files", "v2"), [(V1, False), (V2, True), (OLD_V2, True)])
def test_what_is_in_no_list_of_the_cgroup(tmp_path: Path, files: dict[str, str], v2: bool) -> None:
    assert group(tmp_path, files, v2=v2).charge() == Charge(550, 200)


def test_what_is_charged_for_others_too_tells_nothing(tmp_path: Path) -> None:
    found = group(tmp_path, V2, v2=True)
    (tmp_path / "child").mkdir()
    assert found.charge() is None
    (tmp_path / "child").rmdir()
    (tmp_path / "cgroup.procs").write_text(f"1\n{os.getpid()}")
    assert found.charge() is None
    assert OwnCgroup(tmp_path / "none", v2=True).charge() is None


class Host:
    """A host that charges a keeper for files of 100 MiB."""

    def __init__(self) -> None:
        self.charge: Charge | None = Charge(1000 * MIB, 0)
        self.unfreed = Unfreed(lambda: self.charge)
        self.stays, self.left = 0, 100 * MIB

    def end(self, owner: Owner, stays: int, left: int = 100) -> None:
        """A file ends. Of so many MiB that leave it some are not free."""
        self.stays, self.left = stays * MIB, left * MIB
        read, write = os.pipe()
        os.close(write)
        self.unfreed.end(owner, File(self, read), contextlib.nullcontext)

    def has(self) -> dict[Owner, int]:
        report = self.unfreed.report()
        assert report is not None
        return {owner: size // MIB for owner, size in report.items()}


class File(MemoryFile):
    """Its pages are what the host says."""

    def __init__(self, host: Host, descriptor: int):
        super().__init__(descriptor, 100 * MIB, charged=True)
        object.__setattr__(self, "host", host)

    def end(self) -> None:
        host: Host = self.host  # type: ignore[attr-defined]
        assert host.charge
        was = host.charge
        host.charge = Charge(was.listed - host.left, was.unlisted + host.stays)
        os.close(self.descriptor)


def test_it_is_of_whose_file_has_ended_until_it_is_free() -> None:
    host = Host()
    host.end(FIRST, 100)
    host.end(SECOND, 0)
    host.end(FIRST, 50)
    assert host.has() == {FIRST: 150 - SLACK // MIB}
    host.end(SECOND, 100)
    assert set(host.has()) == {FIRST, SECOND}
    assert sum(host.has().values()) in {249 - SLACK // MIB, 250 - SLACK // MIB}
    host.charge = Charge(0, SLACK)
    host.unfreed.see()
    assert host.has() == {}


def test_what_is_not_free_before_a_file_ends_is_of_who_made_holes() -> None:
    """He who fills them again has fewer pages of the keeper's in the file than were made."""
    host = Host()
    host.charge = Charge(1000 * MIB, SLACK + 200 * MIB)
    host.unfreed.see()
    assert host.has() == {NOBODY: 200}
    host.end(SECOND, 0)
    assert host.has() == {NOBODY: 200}
    host.end(FIRST, 0, left=20)
    assert host.has() == {FIRST: 80, NOBODY: 120}


def test_where_nothing_is_known_nothing_is_said() -> None:
    host = Host()
    assert host.unfreed.report() is None
    host.unfreed.see()
    assert host.unfreed.report() == {}
    host.charge = None
    host.unfreed.see()
    assert host.unfreed.report() is None

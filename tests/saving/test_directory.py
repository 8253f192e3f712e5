"""A checkpoint is complete or not, and the one before it stays until then."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leased.saving.directory import Directory


def finished(directory: Directory, job: str) -> None:
    directory.make(to_write=True)
    directory.finish({"job": job})


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "saved")
    finished(place, "first")
    return place


def job_in(directory: Directory) -> object:
    told = directory.manifest()
    return told and told["job"]


def test_the_next_one_takes_its_place(directory: Directory) -> None:
    finished(directory, "second")
    assert job_in(directory) == "second"
    assert sorted(path.name for path in directory.path.iterdir()) == ["complete"]


def test_one_that_cannot_take_its_place_leaves_it_there(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fails(self: Path, to: Path) -> Path:
        if self.name == "partial":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            finished(directory, "second")
    assert directory.complete.exists()  # which is asked for where the program ends
    assert directory.latest() == directory.partial
    assert job_in(directory) == "first"


def test_one_that_was_cut_off_in_between_is_there_until_the_next_one_is(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.complete.rename(directory.path / "former")
    rename = Path.rename

    def is_cut_off(self: Path, to: Path) -> Path:
        if self.name == "partial":
            raise KeyboardInterrupt
        return rename(self, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", is_cut_off)
        with pytest.raises(KeyboardInterrupt):
            finished(directory, "second")
    assert job_in(directory) == "first"

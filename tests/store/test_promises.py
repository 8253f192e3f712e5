"""What has been promised to a job on several nodes, as the next daemon knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.store.promises import Promises


def after(place: Path, *notes: bool, promised: bool = False) -> bool:
    """Whether it is promised, as a daemon says that comes after one which has noted this."""
    before = Promises(place)
    before.open(7, promised)
    for each in notes:
        before.note(7, each)
    before.close_file(7)
    return Promises(place).is_promised(7)


def test_the_last_note_counts(tmp_path: Path) -> None:
    assert not after(tmp_path / "run")
    assert after(tmp_path / "run", True)
    assert after(tmp_path / "run", promised=True)
    assert not after(tmp_path / "run", False, True, False)


def test_a_job_that_has_ended_leaves_nothing(tmp_path: Path) -> None:
    promises = Promises(tmp_path / "run")
    promises.open(7, False)
    promises.close(7)
    assert list((tmp_path / "run").iterdir()) == []


def test_what_is_not_known_may_be_promised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Promises(tmp_path).is_promised(7)
    (tmp_path / "file").write_text("")
    promises = Promises(tmp_path / "file")  # no file can be made there
    promises.open(7, False)
    assert promises.is_promised(7)
    assert "the next daemon takes it that the job may run" in caplog.text

    def full(*_: object) -> int:
        raise OSError("no space left")

    promises = Promises(tmp_path / "run")
    promises.open(7, False)
    monkeypatch.setattr("os.pwrite", full)
    promises.note(7, True)
    assert promises.is_promised(7)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "7").symlink_to(tmp_path / "other")
    promises = Promises(tmp_path)
    promises.open(7, False)
    assert not (tmp_path / "other").exists()

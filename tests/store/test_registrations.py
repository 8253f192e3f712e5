"""The files of registrations: what the store takes from them, and which are not believed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leased.processes.identity import ProcessId
from leased.store.registrations import Registration, Registrations
from tests.store.conftest import Begin
from tests.store.test_store import UUID, tenant, used

STEPD = ProcessId(12, 34)


def registered(job_id: int) -> Registration:
    record = replace(tenant(job_id), totals={UUID: 1 << 30}, opened=1234.5)
    return Registration(record, (STEPD,))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class TestFiles:
    def test_the_next_daemon_reads_the_files(self, folder: Path) -> None:
        Registrations(folder).put(registered(7))
        next_one = Registrations(folder)
        assert next_one.jobs() == {7}
        assert next_one.read(7) == registered(7)
        next_one.remove(7)
        next_one.remove(7)
        assert next_one.jobs() == set()
        assert next_one.read(7) is None

    def test_only_root_may_open_the_files(self, folder: Path) -> None:
        before = os.umask(0)
        try:
            Registrations(folder).put(registered(7))
        finally:
            os.umask(before)
        assert folder.stat().st_mode & 0o7777 == 0o700
        (path,) = folder.iterdir()
        assert path.stat().st_mode & 0o7777 == 0o600

    def test_fields_of_a_later_release_are_ignored(self, folder: Path) -> None:
        Registrations(folder).put(registered(7))
        change(folder / "7.json", later={"x": 1})
        assert Registrations(folder).read(7) == registered(7)

    def test_a_file_of_another_boot_is_ignored(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        Registrations(folder).put(registered(7))
        change(folder / "7.json", boot="another")
        assert Registrations(folder).read(7) is None
        assert caplog.messages == []

    def test_a_disk_that_takes_nothing_is_said_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "run").write_text("no directory")
        files = Registrations(tmp_path / "run" / "jobs")
        files.put(registered(7))
        files.put(registered(7))
        assert len(caplog.messages) == 1
        assert "if usage.db is lost while the job runs" in caplog.messages[0]
        assert files.jobs() == set()
        assert files.read(7) is None


def empty(path: Path) -> None:
    path.write_text("")


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-9])


def too_long(path: Path) -> None:
    path.write_text(path.read_text() + " " * (1 << 20))


def for_all(path: Path) -> None:
    path.chmod(0o644)


def of_a_user(path: Path) -> None:
    os.chown(path, 1000, 1000)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def says(**values: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        change(path, **values)

    return spoil


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty": (empty, "Expecting value"),
    "cut": (cut, "Unterminated string"),
    "too long": (too_long, "longer than 1048576 bytes"),
    "open to others": (for_all, "it is uid 0's with mode 0644; remove it"),
    "of a user": (of_a_user, "it is uid 1000's with mode 0600"),
    "a link": (link, "symbolic links"),
    "a pipe": (pipe, "it is of another kind"),
    "another job's": (says(job_id=8), "it is of job 8"),
    "a later version's": (says(gpu_lease_job=2), "its version is 2, not 1"),
    "no user's": (says(uid=-1), "uid is -1"),
    "without a GPU": (says(gang="[]"), "gang is not a list of devices"),
    "with a number for text": (says(options=5), "options is 5"),
    "with a list for totals": (says(totals="[]"), "totals is not an object"),
    "with a stepd that is none": (says(stepds=[{"pid": "x", "start": 1}]), "pid is"),
    "with stepds that are none": (says(stepds=[5]), "not a mapping"),
}


@pytest.mark.parametrize(("spoil", "why"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_file_is_refused_alone(
    folder: Path,
    begin: Begin,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    why: str,
) -> None:
    files = Registrations(folder)
    for job in (6, 7):
        files.put(registered(job))
    spoil(folder / "7.json")
    with caplog.at_level(logging.ERROR, "gpu-leased"):
        store = begin(files=True)
    assert [record.job_id for record in store.open_tenants()] == [6]
    (said,) = caplog.messages
    assert f"{folder}/7.json cannot be trusted" in said
    assert why in said
    assert "other jobs are not affected" in said


def test_a_directory_that_others_may_write_to_is_not_believed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Registrations(folder)
    files.put(registered(7))
    folder.chmod(0o777)
    assert files.read(7) is None
    assert f"{folder} is uid 0's with mode 0777; remove it" in caplog.text
    before = (folder / "7.json").stat().st_ino
    files.put(registered(7))
    assert (folder / "7.json").stat().st_ino == before, "nor is anything written there"


class TestStore:
    """The database at usage.db, and one at another.db as it is when that is lost."""

    def test_a_lost_database_costs_usage_and_no_job(self, begin: Begin) -> None:
        store = begin(files=True)
        store.open_tenant(tenant(1))
        store.open_tenant(tenant(2))
        store.add_stepd(STEPD, 1)
        store.place(1, {UUID: 5, "GPU-x": 6})
        store.save({1: used(7)}, 5)
        store.close_tenant(2, used(8))
        (before,) = store.open_tenants()
        store = begin("another.db", files=True)
        (after,) = store.open_tenants()
        assert after == replace(before, usage={})
        assert store.stepds() == {12: (STEPD, 1)}
        store.save({}, 6)
        store = begin("another.db")
        assert store.open_tenants() == [after], "it is in the new database"
        assert store.stepds() == {12: (STEPD, 1)}

    def test_the_database_counts_more_than_a_file(self, folder: Path, begin: Begin) -> None:
        store = begin(files=True)
        store.open_tenant(tenant(1))
        store.save({1: used(7)}, 5)
        (folder / "1.json").write_text("spoilt")
        store = begin(files=True)
        assert [record.usage for record in store.open_tenants()] == [used(7)]
        assert (folder / "1.json").read_text() == "spoilt", "it was not even looked at"

    def test_a_run_that_has_ended_does_not_begin_again(self, folder: Path, begin: Begin) -> None:
        """The daemon had written its end, and was killed before the file was removed."""
        store = begin(files=True)
        store.open_tenant(tenant(1))
        kept = (folder / "1.json").read_text()
        store.close_tenant(1, used(7))
        assert not (folder / "1.json").exists()
        for settled in (False, True):
            (folder / "1.json").touch(0o600)
            (folder / "1.json").write_text(kept)
            store = begin(files=True)
            assert store.open_tenants() == [], f"settled: {settled}"
            assert not (folder / "1.json").exists()
            store.settle([record.run for record in store.unsettled()])

    def test_jobs_of_a_release_before_get_their_files(self, folder: Path, begin: Begin) -> None:
        store = begin()
        store.open_tenant(tenant(1))
        store.add_stepd(STEPD, 1)
        (record,) = store.open_tenants()
        store = begin(files=True)
        assert Registrations(folder).read(1) == Registration(record, (STEPD,))

    def test_nothing_is_written_that_has_not_changed(self, folder: Path, begin: Begin) -> None:
        store = begin(files=True)
        for job in (1, 2):
            store.open_tenant(tenant(job))
        before = {path.name: path.stat().st_ino for path in folder.iterdir()}
        store = begin(files=True)
        for record in store.open_tenants():
            store.resolve(record.job_id, record.options, dict(record.totals))
        store.save({1: used(7)}, 5)
        assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before
        store.resolve(1, "tq:7", {UUID: 1})
        after = {path.name: path.stat().st_ino for path in folder.iterdir()}
        assert {name for name in after if after[name] != before[name]} == {"1.json"}

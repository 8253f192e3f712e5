"""Files for dcgm-exporter: named by NVML's number, a job a line, there as long as a job is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from leased.api.answers import Status
from leased.base.errors import NoAnswer
from leased.metrics import exporter
from leased.metrics.job_mapping import OURS, JobMapping
from leased.metrics.source import Source
from tests.metrics.statuses import device, status, tenant

TWO = [device(0, number=3), device(1, number=0)]


def files(directory: Path) -> dict[str, str]:
    """What dcgm-exporter would take: names that are numbers."""
    return {p.name: p.read_text() for p in directory.iterdir() if p.name.isdecimal()}


@pytest.fixture
def made(tmp_path: Path) -> JobMapping:
    return JobMapping(tmp_path / "a" / "jobs")


def test_a_file_has_the_jobs_of_its_gpu(made: JobMapping) -> None:
    made.follow(status([tenant(9, 0), tenant(7, 0), tenant(8, 1)], TWO))
    assert files(made.directory) == {"3": "7\n9\n", "0": "8\n"}
    for path in (made.directory / "3", made.directory / "0"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o755


def test_an_older_daemon_says_slurms_index_alone(made: JobMapping) -> None:
    made.follow(status([tenant(7, 1)], [device(0), device(1)]))
    assert files(made.directory) == {"1": "7\n"}


def test_files_of_one_that_was_killed_are_removed(made: JobMapping) -> None:
    made.follow(status([tenant(7, 0), tenant(8, 1)], TWO))
    JobMapping(made.directory).follow(status([tenant(8, 1)], TWO))
    assert files(made.directory) == {"0": "8\n"}


def test_a_file_of_somebody_else_stays(made: JobMapping) -> None:
    made.follow(status([tenant(7, 0)], TWO))
    (made.directory / "3").write_text("4711\n")
    (made.directory / "5").write_text("4712\n")
    made.follow(status([], TWO))
    made.clear()
    assert files(made.directory) == {"3": "4711\n", "5": "4712\n"}


def test_a_file_that_was_changed_is_ours_again_while_we_have_jobs(made: JobMapping) -> None:
    jobs = status([tenant(7, 0)], TWO)
    made.follow(jobs)
    (made.directory / "3").write_text("4711\n")
    made.follow(jobs)
    assert files(made.directory) == {"3": "7\n"}
    (made.directory / "3").unlink()
    made.follow(jobs)
    assert files(made.directory) == {"3": "7\n"}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"../x": "7\\n"}', '{"3": 5}'])
def test_the_list_of_our_files_may_contain_anything(made: JobMapping, text: str) -> None:
    made.directory.mkdir(parents=True)
    (made.directory / OURS).write_text(text)
    (made.directory.parent / "x").write_text("7\n")
    made.follow(status([], TWO))
    assert files(made.directory) == {}
    assert (made.directory.parent / "x").read_text() == "7\n"


def test_a_link_in_the_way_is_not_followed(made: JobMapping, tmp_path: Path) -> None:
    made.directory.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("kept")
    for name in (".3.new", "3"):
        (made.directory / name).symlink_to(target)
    made.follow(status([tenant(7, 0)], TWO))
    assert target.read_text() == "kept"
    assert files(made.directory) == {"3": "7\n"}


@pytest.mark.parametrize("name", ["3", OURS])
def test_what_is_no_file_of_ours_is_not_read(made: JobMapping, name: str) -> None:
    """A FIFO keeps its reader waiting, and /dev/zero has no end."""
    made.directory.mkdir(parents=True)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (made.directory / name).unlink(missing_ok=True)
        make(made.directory / name)
        JobMapping(made.directory).follow(status([tenant(7, 0)], TWO))
        assert files(made.directory) == {"3": "7\n"}


def test_a_link_does_not_say_which_files_are_ours(made: JobMapping, tmp_path: Path) -> None:
    made.directory.mkdir(parents=True)
    (tmp_path / "said").write_text('{"5": "9\\n"}')
    (made.directory / OURS).symlink_to(tmp_path / "said")
    (made.directory / "5").write_text("9\n")
    made.follow(status([tenant(7, 0)], TWO))
    assert files(made.directory) == {"3": "7\n", "5": "9\n"}


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_nothing_is_written_where_others_may_write(
    made: JobMapping, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    made.directory.mkdir(parents=True)
    made.directory.chmod(mode)
    made.follow(status([tenant(7, 0)], TWO))
    assert list(made.directory.iterdir()) == []
    assert caplog.messages == [f"metrics.job_mapping_dir: {made.directory}: others may write to it"]
    made.directory.chmod(0o755)
    made.follow(status([tenant(7, 0)], TWO))
    assert files(made.directory) == {"3": "7\n"}


def test_a_fault_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    made = JobMapping(tmp_path / "file" / "jobs")
    for _ in range(3):
        made.follow(status([tenant(7, 0)], TWO))
    (said,) = caplog.messages
    assert said.startswith("metrics.job_mapping_dir: ")
    assert said.endswith("Not a directory")


def test_files_follow_the_daemon_and_stay_while_it_is_silent(
    made: JobMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "MAPPING_S", 0.0)
    stop, asked = threading.Event(), threading.Semaphore(0)
    answers = iter([status([tenant(7, 0)], TWO), None, None, status([tenant(8, 0)], TWO)])
    seen = []

    def ask() -> Status:
        seen.append(files(made.directory) if made.directory.exists() else {})
        answer = next(answers, None)
        asked.release()
        if answer is None:
            raise NoAnswer("silent")
        return answer

    ticks = iter(range(1_000_000_000))
    with exporter.mapping(made, Source(ask, lambda: next(ticks)), stop):
        for _ in range(5):
            assert asked.acquire(timeout=60)
    assert seen[:5] == [{}, {"3": "7\n"}, {"3": "7\n"}, {"3": "7\n"}, {"3": "8\n"}]
    assert list(made.directory.iterdir()) == [], "nothing is left behind"

"""Which worker of a run gets which tests."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import durations, parallel

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.support.scheduling import GroupScheduling

def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_writes_where_it_runs(number, worker_id):
    with open("ran", "a") as file:
        file.write(f"{worker_id} {__file__.rpartition('/')[2]} {number}\\n")
"""


def test_one_worker_runs_all_tests_of_a_file_in_order(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("test_a.py", "test_b.py", "test_c.py", "test_d.py"):
        (tmp_path / name).write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers, numbers = defaultdict(set), defaultdict(list)
    for line in (tmp_path / "ran").read_text().splitlines():
        worker, file, number = line.split()
        workers[file].add(worker)
        numbers[file].append(int(number))
    assert all(len(of_file) == 1 for of_file in workers.values()), workers
    assert dict(numbers) == {f"test_{x}.py": list(range(6)) for x in "abcd"}


def test_files_that_share_a_thing_are_one_group() -> None:
    groups = {parallel.group(file, 0) for file in parallel.CGROUPS_OF_SLURM}
    assert len(groups) == 1


def test_a_file_in_parts_is_as_many_groups() -> None:
    for file, parts in parallel.PARTS.items():
        assert len({parallel.group(file, number) for number in range(20)}) == parts


def test_the_longest_groups_begin_first_and_their_files_stay_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (together, *others) = ("tests/security/test_slurm_a.py", "tests/b.py", "tests/c.py")
    seconds = {"tests/b.py": 9, "tests/security/test_slurm_z.py": 8, together: 2, "tests/d.py": 3}
    monkeypatch.setattr(parallel, "SECONDS", seconds)
    files = [*others, together, *seconds]
    assert parallel.longest_first(f"{file}::test_{n}" for n in (1, 2) for file in files) == [
        *(together, "tests/security/test_slurm_z.py"),
        *("tests/b.py", "tests/d.py", "tests/c.py"),
    ]


def test_a_file_in_parts_begins_as_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (file, parts) = next(iter(parallel.PARTS.items()))
    monkeypatch.setattr(parallel, "SECONDS", {file: 10 * parts, "tests/b.py": 9, "tests/c.py": 11})
    assert parallel.longest_first([file, "tests/b.py", "tests/c.py"]) == [
        *("tests/c.py", file, "tests/b.py")
    ]


def test_files_that_are_grouped_or_divided_are_there() -> None:
    """A file that is renamed takes its place in these tables along."""
    named = [*parallel.PARTS, *parallel.CGROUPS_OF_SLURM, *parallel.SECONDS]
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_how_long_files_took_is_read_from_a_report() -> None:
    case = '<testcase classname="{}" name="x" time="{}">{}</testcase>'
    used = '<properties><property name="processor_s" value="0.5"/></properties>'
    cases = [
        ("tests.base.test_version", 1.0, ""),
        ("tests.support.test_leaks", 4.0, used),
        ("tests.fuzz.test_stateful.TestAnything", 5.5, ""),
        ("tests.support.test_leaks", 4.0, used),
    ]
    report = "<testsuites>" + "".join(case.format(*one) for one in cases) + "</testsuites>"
    assert list(durations.by_file(report).items()) == [
        ("tests/support/test_leaks.py", (8.0, 1.0)),
        ("tests/fuzz/test_stateful.py", (5.5, 0.0)),
        ("tests/base/test_version.py", (1.0, 0.0)),
    ]
    with pytest.raises(ValueError, match="is in no file of the tests"):
        durations.by_file(case.format("tests.gone.test_gone", 1.0, "").join(["<a>", "</a>"]))

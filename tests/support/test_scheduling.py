"""Which worker of a run gets which tests."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.support import parallel

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

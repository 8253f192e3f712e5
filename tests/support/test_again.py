"""Failed tests run again: which, and what a run that shows nothing says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import again
from tests.support.again import LastRun


@pytest.fixture(autouse=True)
def _own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "LAST_RUN", tmp_path / "tests" / "last_run.json")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tests that were run again; those with `bad` in their names fail."""
    names: list[str] = []

    def run_alone(failed: list[str]) -> list[str]:
        names.extend(failed)
        return [name for name in failed if "bad" in name]

    monkeypatch.setattr(again, "run_alone", run_alone)
    return names


def test_what_passes_alone_is_named(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    again.write(LastRun(1, ["a.py::test_a[x y]", "b.py::test_b"]))
    assert again.main(["--most", "2"]) == 0
    assert ran == ["a.py::test_a[x y]", "b.py::test_b"]
    assert "a.py::test_a[x y] FAILED beside others, passed" in capsys.readouterr().out


def test_what_fails_again_fails(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    again.write(LastRun(1, ["a.py::test_a", "b.py::test_bad"]))
    assert again.main([]) == 1
    assert len(ran) == 2
    assert "b.py::test_bad FAILED again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (LastRun(1, ["a", "b", "c"]), "3 tests failed, and 2 may be run again"),
        (LastRun(1, []), "the last run failed, and no test of it did"),
        (LastRun(2, ["a"]), "pytest's status 2"),
        (LastRun(5, []), "pytest's status 5"),
        (LastRun(0, []), "no test failed in the last run"),
        (LastRun(1, ["a"], ["was left behind and is killed: 7 x"]), "left behind and is killed: 7"),
    ],
)
def test_nothing_is_run_again(
    run: LastRun, reason: str, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    again.write(run)
    assert again.main(["--most", "2"]) == 1
    assert not ran
    assert reason in capsys.readouterr().out


@pytest.mark.usefixtures("ran")
def test_what_fails_again_is_left_for_the_next_time() -> None:
    again.write(LastRun(1, ["a.py::test_a", "b.py::test_bad"]))
    again.main([])
    assert again.read() == LastRun(1, ["b.py::test_bad"])
    again.write(LastRun(1, ["a.py::test_a"]))
    again.main([])
    assert again.read() == LastRun(0, [])


def test_each_test_has_a_run_of_its_own(tmp_path: Path) -> None:
    """What is skipped then, or is not there any more, has not passed."""
    tests = {
        "good": "def test_it(): pass",
        "bad": "def test_it(): assert False",
        "skipped": "import pytest\n@pytest.mark.skip\ndef test_it(): pass",
    }
    names = {name: str(tmp_path / f"test_{name}.py") for name in tests}
    for name, text in tests.items():
        Path(names[name]).write_text(text)
    failed = again.run_alone([*names.values(), f"{names['good']}::test_other"])
    assert failed == [names["bad"], names["skipped"], f"{names['good']}::test_other"]


# -- what a run of pytest leaves for it --------------------------------------------------

HOOKS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.conftest import pytest_configure, pytest_sessionfinish
"""
CRASHES = "def test_it():\n import os\n os._exit(9)"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run pytest on files with these texts, with the hooks of our tests."""

    def start(*arguments: str, **texts: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "conftest.py").write_text(HOOKS)
        for name, text in texts.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", *arguments, str(tmp_path)]
        env = os.environ | {again.ELSEWHERE: str(again.LAST_RUN)}
        return subprocess.run(command, env=env, check=False, capture_output=True, text=True)

    return start


Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_failed_test_is_run_again(run: Run) -> None:
    assert run("-n2", a="def test_it(): pass", b="def test_it(): assert False").returncode == 1
    last = again.read()
    assert (last.status, last.beyond) == (1, [])
    assert [name.rpartition("/")[2] for name in last.failed] == ["test_b.py::test_it"]


def test_a_worker_that_crashes_is_no_failed_test(run: Run) -> None:
    """Those behind it may not have run."""
    run("-n1", "--max-worker-restart=0", a=CRASHES)
    reason = again.why_not(again.read(), 2)
    assert reason is not None
    assert "crashed while running" in reason or "pytest's status" in reason


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_file_that_cannot_be_collected_is_no_failed_test(run: Run, workers: str) -> None:
    run(workers, a="import nothing_of_this_name", b="def test_it(): pass")
    assert again.why_not(again.read(), 2) is not None


def test_a_run_that_is_killed_is_no_run(run: Run) -> None:
    again.write(LastRun(0, []))
    run("-n0", a=CRASHES)
    with pytest.raises(SystemExit, match="no run of tests has come to its end"):
        again.main([])

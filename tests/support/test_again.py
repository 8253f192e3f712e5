"""Failed tests run again: which, and what a run that shows nothing says."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    ],
)
def test_nothing_is_run_again(
    run: LastRun, reason: str, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    again.write(run)
    assert again.main(["--most", "2"]) == 1
    assert not ran
    assert reason in capsys.readouterr().out


def test_a_run_without_failures_needs_nothing(ran: list[str]) -> None:
    again.write(LastRun(0, []))
    assert again.main([]) == 0
    assert not ran


def test_each_test_has_a_run_of_its_own(tmp_path: Path) -> None:
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_it(): pass")
    bad.write_text("def test_it(): assert False")
    assert again.run_alone([str(bad), f"{good}::test_it"]) == [str(bad)]


def test_before_any_run_it_says_what_to_do() -> None:
    with pytest.raises(SystemExit, match="run `make test` first"):
        again.main([])

"""Run the tests that failed in the last run once more, each with the machine for itself.

A test that fails beside others and passes alone has a fault, or shows one: its name is printed
last, so that nobody overlooks it. `--most` says how many such tests a run may have at all. With
more of them nothing is run, and neither is where failed tests are not all that was wrong: where the
run did not come to its end, or no test of it failed, a worker crashed or a file could not be
collected (tests may not have run at all), or programs were left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build" / "tests"
ELSEWHERE = "LAST_TEST_RUN"  # where a run of one test writes what became of it
LAST_RUN = Path(os.environ.get(ELSEWHERE, BUILD / "last_run.json"))
PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True)
class LastRun:
    """status: pytest's exit status. failed: names of tests, as pytest takes them. beyond: what else
    was wrong, in words."""

    status: int
    failed: list[str]
    beyond: list[str] = field(default_factory=list)


def begin() -> None:
    """A run begins. Until it ends there is no last run."""
    LAST_RUN.unlink(missing_ok=True)


def write(run: LastRun) -> None:
    LAST_RUN.parent.mkdir(parents=True, exist_ok=True)
    LAST_RUN.write_text(json.dumps(asdict(run), indent=1) + "\n")


def read() -> LastRun:
    try:
        return LastRun(**json.loads(LAST_RUN.read_text()))
    except FileNotFoundError:
        sys.exit(f"again: no run of tests has come to its end ({LAST_RUN}): run `make test` first")


def beyond_tests(reports: Iterable[pytest.CollectReport | pytest.TestReport]) -> list[str]:
    """What of the failed reports is not of a test that ran, in words."""
    return [
        f"{report.nodeid}: {str(report.longrepr).strip().splitlines()[-1]}"
        for report in reports
        if getattr(report, "when", None) not in PHASES
    ]


def why_not(run: LastRun, most: int | None) -> str | None:
    """Why running the failed tests again would show nothing, or None."""
    if run.status == pytest.ExitCode.OK:
        return "no test failed in the last run"
    if run.status != pytest.ExitCode.TESTS_FAILED:
        return f"the last run ended with pytest's status {run.status}, not with failed tests"
    if run.beyond:
        return "; ".join(run.beyond)
    if not run.failed:
        return "the last run failed, and no test of it did"
    if most is not None and len(run.failed) > most:
        return f"{len(run.failed)} tests failed, and {most} may be run again"
    return None


def run_alone(names: Sequence[str]) -> list[str]:
    """The tests that do not pass again. Each has a pytest of its own."""
    return [name for name in names if not _passes(name)]


def _passes(name: str) -> bool:
    """Whether the test passes; one that is skipped, or that is not there, does not."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "junit.xml"
        env = os.environ | {ELSEWHERE: str(Path(place) / "last_run.json")}
        command = [sys.executable, "-m", "pytest", "-n", "0", f"--junitxml={report}", name]
        if subprocess.run(command, env=env, check=False).returncode:
            return False
        (suite,) = ElementTree.parse(report).getroot()
        return int(suite.get("tests", 0)) > int(suite.get("skipped", 0))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="again", description=__doc__)
    parser.add_argument("--most", type=int, help="how many failed tests may be run again")
    most: int | None = parser.parse_args(argv).most
    run = read()
    if reason := why_not(run, most):
        print(f"again: nothing is run again: {reason}")
        return 1
    failed = run_alone(run.failed)
    for name in run.failed:
        print(
            f"again: {name} {'FAILED again' if name in failed else 'FAILED beside others, passed'}"
        )
    write(LastRun(1 if failed else 0, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

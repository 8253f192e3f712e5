"""Run the tests that failed in the last run once more, each with the machine for itself.

A test that fails beside others and passes alone has a fault, or shows one: its name is printed
last, so that nobody overlooks it. `--most` says how many such tests a run may have at all; with
more of them, or where the last run did not come to its end, nothing is run and the run has failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

LAST_RUN = Path(__file__).resolve().parents[2] / "build" / "tests" / "last_run.json"


@dataclass(frozen=True)
class LastRun:
    status: int  # pytest's exit status
    failed: list[str]  # the names of the tests, as pytest takes them


def write(run: LastRun) -> None:
    LAST_RUN.parent.mkdir(parents=True, exist_ok=True)
    LAST_RUN.write_text(json.dumps(asdict(run), indent=1) + "\n")


def read() -> LastRun:
    try:
        return LastRun(**json.loads(LAST_RUN.read_text()))
    except FileNotFoundError:
        sys.exit(f"again: {LAST_RUN} is missing: run `make test` first")


def why_not(run: LastRun, most: int | None) -> str | None:
    """Why running the failed tests again would show nothing, or None."""
    if run.status != pytest.ExitCode.TESTS_FAILED:
        return f"the last run ended with pytest's status {run.status}, not with failed tests"
    if not run.failed:
        return "the last run failed, and no test of it did"
    if most is not None and len(run.failed) > most:
        return f"{len(run.failed)} tests failed, and {most} may be run again"
    return None


def run_alone(names: Sequence[str]) -> list[str]:
    """The tests that fail again. Each has a pytest of its own."""
    return [
        name
        for name in names
        if subprocess.run([sys.executable, "-m", "pytest", "-n", "0", name], check=False).returncode
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="again", description=__doc__)
    parser.add_argument("--most", type=int, help="how many failed tests may be run again")
    most: int | None = parser.parse_args(argv).most
    run = read()
    if run.status == pytest.ExitCode.OK:
        print("again: no test failed in the last run")
        return 0
    if reason := why_not(run, most):
        print(f"again: nothing is run again: {reason}")
        return 1
    failed = run_alone(run.failed)
    for name in run.failed:
        print(
            f"again: {name} {'FAILED again' if name in failed else 'FAILED beside others, passed'}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

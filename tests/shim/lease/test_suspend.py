"""What SIGTSTP does to a program that the interposer watches: shim/lease/suspend.c."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.machine import user_namespaces_required

PROGRAM = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/lease/suspend_cases"


@pytest.mark.parametrize(
    "case",
    [
        *("nothing", "own-before", "own-after", "chains", "takes-over", "ignores-before"),
        *("ignores-after", "default-after", "threads", "fork"),
        *("stepd", "stepd-threads", "stepd-chains", "stepd-own"),
        *("own-once", "chains-once", "stepd-default-after", "stepd-ignores"),
        *("stepd-blocks", "stepd-unblocks", "stepd-unblocks-late"),
        *("terminal", "stepd-terminal", "chains-open", "stepd-chains-open"),
        *("resumed-early", "resumed-early-threads", "stepd-resumed-early"),
        *("pids-user", "pids-typed", "pids-stepd", "pids-first-user", "pids-first-stepd"),
        *("users-root", "users-user", "users-stepd", "users-pids-user", "users-pids-stepd"),
    ],
)
def test_a_program_is_stopped_as_often_as_without_it(case: str) -> None:
    """Once by each signal, and by none of slurmstepd's, of which the daemon is told."""
    if case.startswith("users"):
        user_namespaces_required()
    done = subprocess.run([str(PROGRAM), case], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

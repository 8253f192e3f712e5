"""Claims of host memory whose answers cross what else the process says: shim/memory/claims.c."""

from __future__ import annotations

import subprocess

import pytest

from tests.emugpu.server import BUILD

PROGRAM = BUILD.parent / "shim" / "memory" / "claims_cases"


def cases() -> list[str]:
    if not PROGRAM.exists():
        return []
    done = subprocess.run([str(PROGRAM)], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_there_are_cases() -> None:
    assert cases()


@pytest.mark.parametrize("case", cases())
def test_daemon_and_process_believe_the_same(case: str) -> None:
    done = subprocess.run([str(PROGRAM), case], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

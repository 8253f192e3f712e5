"""Memory that leaves and comes back, and the store of what has left, with shim/memory alone."""

from __future__ import annotations

import subprocess

import pytest

from tests.emugpu.server import BUILD

PROGRAM = BUILD.parent / "shim" / "memory" / "memory_movers"


def cases() -> list[str]:
    if not PROGRAM.exists():
        return []
    done = subprocess.run([str(PROGRAM)], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_there_are_cases() -> None:
    assert cases()


@pytest.mark.parametrize("case", cases())
def test_a_mover_keeps_its_contract(case: str) -> None:
    done = subprocess.run(
        [str(PROGRAM), case], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

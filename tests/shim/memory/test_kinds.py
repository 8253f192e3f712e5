"""What every kind of device memory promises, each case in a process with shim/memory alone."""

from __future__ import annotations

import subprocess

import pytest

from tests.emugpu.server import BUILD

PROGRAM = BUILD.parent / "shim" / "memory" / "kind_contract"


def rows() -> list[list[str]]:
    """Each case and kind that the program has."""
    if not PROGRAM.exists():
        return []
    done = subprocess.run([str(PROGRAM)], check=True, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_there_are_kinds() -> None:
    kinds = {kind for _, kind in rows()}
    assert kinds >= {"managed", "swapped", "fixed"}


@pytest.mark.parametrize(("case", "kind"), rows())
def test_a_kind_of_memory_keeps_its_contract(case: str, kind: str) -> None:
    done = subprocess.run(
        [str(PROGRAM), case, kind], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr

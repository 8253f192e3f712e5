"""Programs of many cases: without an argument one prints their names, with a name it runs that."""

from __future__ import annotations

import subprocess

from tests.emugpu.server import BUILD

PROGRAMS = BUILD.parent / "shim" / "memory"


def cases(program: str) -> list[str]:
    """The lines that a program prints of its cases; none while it is not built."""
    path = PROGRAMS / program
    if not path.exists():
        return []
    done = subprocess.run([str(path)], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def run(program: str, *case: str) -> None:
    """Run a case. AssertionError: it fails, and has said why."""
    command = [str(PROGRAMS / program), *case]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

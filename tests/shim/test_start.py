"""What is prepared while a process has one thread, since the kernel makes nobody wait then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "build" / "meson" / "shim"

FIRST_LINE = """
import ctypes, platform
numbers = {"x86_64": 324, "aarch64": 283}
expedited = 8  # MEMBARRIER_CMD_PRIVATE_EXPEDITED: refused unless the process has registered
libc = ctypes.CDLL(None)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(libc.syscall(numbers[platform.machine()], expedited, 0, 0), int(status["FDSize"]))
"""


def started(library: str | None) -> list[int]:
    """What membarrier() returns, and how many descriptors the process' table has room for."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    env |= {"LD_PRELOAD": str(SHIM / library)} if library else {}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LINE], check=True, env=env, capture_output=True, text=True
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("library", ["libgpulease.so", "libgpulease-checked.so"])
def test_what_takes_a_grace_period_with_threads_is_done_before_them(library: str) -> None:
    bare, room = started(None)
    assert bare == -1
    assert room < 1024
    barrier, room = started(library)
    assert barrier == 0
    assert room >= 1024

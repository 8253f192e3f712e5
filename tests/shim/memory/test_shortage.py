"""How long a job waits for other jobs to evict what its allocation needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SHORTAGE_WAIT = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/memory/shortage_wait"


@pytest.mark.parametrize(("away_s", "given_up_s"), [(0, 10), (30, 45)])
def test_it_has_ten_seconds_in_which_the_daemon_is_there(away_s: int, given_up_s: int) -> None:
    done = subprocess.run([SHORTAGE_WAIT, str(away_s)], check=True, capture_output=True, text=True)
    assert int(done.stdout) == given_up_s

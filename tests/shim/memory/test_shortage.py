"""How long a job waits for other jobs to evict what its allocation needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SHORTAGE_WAIT = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/memory/shortage_wait"


NO_LEASE = -1


def given_up_s(away_s: int, leased_s: int) -> int:
    """When the daemon is away, and the process waits for a lease, for so long. NO_LEASE: it is one
    of swapped memory, which waits for none."""
    command = [str(SHORTAGE_WAIT), str(away_s), str(leased_s)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("leased_s", [0, NO_LEASE])
@pytest.mark.parametrize(("away_s", "whole_s"), [(0, 10), (30, 45)])
def test_it_has_ten_seconds_in_which_the_daemon_is_there(
    away_s: int, whole_s: int, leased_s: int
) -> None:
    assert given_up_s(away_s, leased_s) == whole_s


def test_it_has_ten_seconds_in_which_it_has_a_lease() -> None:
    assert given_up_s(0, 60) == 70

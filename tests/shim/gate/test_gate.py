"""Nobody slips through a closing gate: many threads, random closes, also under thread sanitizer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[3] / "build" / "meson" / "tests" / "shim" / "gate"


@pytest.mark.parametrize(
    ("program", "closes", "mode"),
    [
        ("gate_stress", 1000, ""),
        ("gate_stress", 300, "fenced"),
        ("gate_stress_tsan", 300, ""),
    ],
)
def test_no_submission_slips_through(program: str, closes: int, mode: str) -> None:
    done = subprocess.run(
        [str(BUILD / program), "8", str(closes), mode],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["fenced"] or not mode
    assert seen["slipped"] == seen["refused"] == 0
    assert seen["passed"] > 100 * closes
    assert seen["lives"] > 8, "threads ended and others took their slots"


def test_a_program_that_forbids_itself_the_barrier_is_waited_for() -> None:
    """Its threads pass without fences: what they have stored is seen a little later."""
    done = subprocess.run(
        [str(BUILD / "forbidden_barrier")], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "goes on, waits\n"

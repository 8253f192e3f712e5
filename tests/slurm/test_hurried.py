"""A program with shorter pauses than its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leased.monitors import device_monitor
from tests.slurm import hurried

LOOK = "leased.monitors.device_monitor.LOOK_S"


@pytest.mark.parametrize(
    "word", [f"{LOOK}=60", "leased.monitors.device_monitor.NO_S=0.1", f"{LOOK}=often"]
)
def test_nothing_but_a_shorter_pause_is_put(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_monitor, "LOOK_S", 0.5)
    with pytest.raises(ValueError, match=r"no pause that (60|0\.1) would|often"):
        hurried.put(word)
    assert device_monitor.LOOK_S == 0.5


def test_the_program_has_its_arguments_and_the_pause() -> None:
    program = ["timeit", "-n1", "-r1", f"import {LOOK.rpartition('.')[0]}; print({LOOK})"]
    command = [sys.executable, "-m", "tests.slurm.hurried", f"{LOOK}=0.25", "--", *program]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[0] == "0.25"

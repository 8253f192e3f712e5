"""A daemon that does not end as it should fails its test: nobody would see it otherwise."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.slurm.leased import Leased
from tests.slurm.processes import Daemon, StopError

STAYS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("but there is work", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_one_that_does_not_end_is_killed_and_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    daemon = Daemon.start("stubborn", [sys.executable, "-c", STAYS], log)
    daemon.wait_ready(lambda: "ready" in log.read_text())
    with pytest.raises(StopError, match=r"(?s)stubborn had not ended 2 s after SIGTERM:.*work"):
        daemon.stop(timeout=2)
    assert daemon.process.returncode == -signal.SIGKILL


def test_one_that_ends_with_a_fault_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit('a fault'))\n"
    code += "print('ready', flush=True)\nwhile True: signal.pause()"
    leased = Leased(tmp_path / "leased", tmp_path / "run", {})
    leased.daemon = Daemon.start("gpu-leased", [sys.executable, "-c", code], log)
    leased.daemon.wait_ready(lambda: "ready" in log.read_text())
    with pytest.raises(StopError, match=r"(?s)ended with 1 at its stop:.*a fault"):
        leased.stop()


def test_one_that_was_killed_is_no_fault(tmp_path: Path) -> None:
    leased = Leased(tmp_path / "leased", tmp_path / "run", {})
    leased.daemon = Daemon.start("gpu-leased", [sys.executable, "-c", STAYS], tmp_path / "log")
    leased.kill()
    leased.stop()

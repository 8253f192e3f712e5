"""What the jobs of the chaos test do beside computing, without a Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.slurm.chaos_jobs import REGISTER
from tests.spank.test_register import daemon


def test_a_gang_registers_with_the_next_daemon_if_one_is_killed_meanwhile(short_dir: Path) -> None:
    path = short_dir / "admin.sock"
    with daemon(path, [None, {"ok": True}]) as asked:
        command = [sys.executable, "-c", REGISTER, str(path), "7", "lock:on", "2,5"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [request["gpus"] for request in asked] == [[2, 5]]

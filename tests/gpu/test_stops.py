"""The check of stops with real programs on the emulated GPU: all is there, and right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import emulated
from tests.gpu.build import ROOT

NAMES = ["plain", "managed", "graph", "host"]


def test_programs_that_are_stopped_compute_what_they_do_bare(tmp_path: Path) -> None:
    if not emulated.build(tmp_path, "stops"):
        pytest.skip("no compiler of C++")
    command = [sys.executable, "-m", "tests.gpu.emulated", "tests.gpu.check_stops"]
    command += ["--only", ",".join(NAMES), "--mib", "4", "--rounds", "1", "--steps", "60"]
    env = os.environ | {"GPU_PROGRAMS": str(tmp_path), "OUT": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    report = json.loads((tmp_path / "stops-0.json").read_text())
    runs = report["programs"]["runs"]
    assert list(runs) == [f"{name}, {kind}" for kind in ("swap", "managed") for name in NAMES]
    for found in runs.values():
        assert found["job"]["digest"] == found["bare"]["digest"], (found["summary"], done.stderr)
        assert found["job"]["interposed"]
        assert found["counts"]["handoffs"]
        assert not found["counts"]["refused"]

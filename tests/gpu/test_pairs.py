"""The check of pairs: its judge, and the check itself with real programs on the emulated GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import emulated
from tests.gpu.build import ROOT
from tests.gpu.check_pairs import Pair, chosen_names, judged
from tests.support.together import zip_strict


def felt(p99_ms: float, wrong: int = 0) -> dict[str, Any]:
    return {"p50_ms": p99_ms / 2, "p99_ms": p99_ms, "done_s": 50.0, "wrong": wrong}


@pytest.mark.parametrize(
    ("pair", "before", "now", "wrong", "good"),
    [
        (("service", "saturating"), (8, 31), (3.6, 31), 0, True),
        (("service", "saturating"), (8, 31), (9.2, 34.5), 0, True),
        (("service", "saturating"), (8, 31), (9.4, 31), 0, False),
        (("service", "saturating"), (8, 31), (3.6, 36), 0, False),
        (("saturating", "graph"), (45, 45), (54, 54), 0, True),
        (("saturating", "graph"), (45, 45), (45, 56), 0, False),
        (("saturating", "graph"), (45, 45), (45, 45), 1, False),
    ],
)
def test_no_p99_may_be_worse_than_by_the_drivers_slices(
    pair: Pair, before: tuple[float, float], now: tuple[float, float], wrong: int, good: bool
) -> None:
    found = judged(
        pair,
        {name: felt(1) for name in pair},
        {name: felt(ms) for name, ms in zip_strict(pair, before)},
        {name: felt(ms, wrong) for name, ms in zip_strict(pair, now)},
    )
    assert found["good"] is good, found["summary"]


def test_groups_of_checks_have_each_pair_once() -> None:
    names = chosen_names("driver,torch")
    assert len(names) == len(set(names)) == 36


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program is that the check runs: of the driver alone, so any compiler makes it."""
    directory = tmp_path_factory.mktemp("programs")
    if not emulated.build(directory, "shares"):
        pytest.skip("no compiler of C++")
    return directory


def test_pairs_run_and_are_judged(built: Path, tmp_path: Path) -> None:
    """How long steps take here means nothing: only that all is there, and right."""
    names = "service+saturating,graph+copies,shares_service"
    command = [sys.executable, "-m", "tests.gpu.emulated", "tests.gpu.check_pairs"]
    command += ["--only", names, "--mib", "1", "--seconds", "0.5", "--settle", "0.5"]
    env = os.environ | {"GPU_PROGRAMS": str(built), "OUT": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    report = json.loads((tmp_path / "pairs-0.json").read_text())
    assert list(report) == names.split(","), done.stderr
    assert done.returncode == int(not all(one["good"] for one in report.values()))
    for found in report.values():
        assert "error" not in found, found
        for one in (*found["bare"].values(), *found["leased"].values()):
            assert one["wrong"] == 0
            assert one["steps"] > 0
            assert 0 < one["p50_ms"] <= one["p99_ms"] <= one["max_ms"]

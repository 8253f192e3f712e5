"""Programs that are built with a sanitizer run as they do without the interposer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.emugpu.server import BUILD
from tests.slurm.leased import CHECKED, PRELOAD

PROGRAMS = BUILD.parent / "shim" / "hooks"


@pytest.mark.parametrize("preload", [None, PRELOAD, CHECKED])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_it_runs_and_finds_our_functions(sanitizer: str, preload: Path | None) -> None:
    env = os.environ | {"LD_LIBRARY_PATH": str(BUILD)}
    env |= {"LD_PRELOAD": str(preload)} if preload else {}
    program = str(PROGRAMS / f"sanitized_{sanitizer}")
    done = subprocess.run([program], env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{preload.name if preload else 'libcuda.so.1'}\n"

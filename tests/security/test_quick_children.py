"""Root starts gpu-lease's programs in users' directories and with variables that they chose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import _gpulease
import pytest

from leased.cli.checks.finding import OK
from tests.conftest import ROOT

TRAP = """
import os
with open({marker!r}, "a") as said:
    said.write(__name__ + "\\n")
"""
# What a user would put there: our own modules, what they import, what Python runs at its start.
TRAPS = (
    *("_gpulease_slurmdb", "_gpulease", "_cffi_backend", "sitecustomize", "usercustomize"),
    *("leased/__init__", "leased/ctl", "leased/accounting", "json", "asyncio/__init__"),
)


class Bait:
    """A user's directory full of modules that must not be run as root."""

    def __init__(self, folder: Path):
        self.folder = folder / "home"
        self.marker = folder / "marker"
        for name in TRAPS:
            file = self.folder / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(TRAP.format(marker=str(self.marker)))

    @property
    def taken(self) -> list[str]:
        """The modules that were run."""
        return self.marker.read_text().split() if self.marker.exists() else []

    def run(self, command: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command as root would in that directory."""
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=os.environ | env,
            timeout=60,
        )


@pytest.fixture
def bait(tmp_path: Path) -> Bait:
    return Bait(tmp_path)


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """gpu-leasectl as it is installed, for this checkout."""
    private = tmp_path / "private" / "python"
    private.mkdir(parents=True)
    (private / "leased").symlink_to(ROOT / "leased")
    for file in Path(_gpulease.__file__).parent.glob("_gpulease*.so"):
        (private / file.name).symlink_to(file)
    text = (ROOT / "packaging" / "launcher.in").read_text()
    given = {
        "PYTHON": sys.executable,
        "MODULE": "leased.cli.ctl",
        "PRIVATE_DIR": str(private.parent),
    }
    for name, value in given.items():
        text = text.replace(f"@{name}@", value)
    made = tmp_path / "gpu-leasectl"
    made.write_text(text)
    made.chmod(0o755)
    return made


def test_launcher_runs_nothing_of_its_caller(bait: Bait, launcher: Path) -> None:
    done = bait.run([str(launcher), "--help"], PYTHONPATH=str(bait.folder), PYTHONSTARTUP="json.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: gpu-leasectl" in done.stdout
    assert bait.taken == []


def test_check_runs_nothing_of_the_directory_it_is_called_in(bait: Bait, launcher: Path) -> None:
    done = bait.run([str(launcher), "check", "--json"], PYTHONPATH=str(bait.folder))
    findings = {finding["id"]: finding for finding in json.loads(done.stdout)}
    assert findings["libslurm"]["level"] == OK, findings["libslurm"]
    assert bait.taken == []


def test_slurms_commands_are_not_those_of_the_directory(bait: Bait, launcher: Path) -> None:
    for name in ("slurmd", "scontrol", "squeue", "scancel"):
        file = bait.folder / name
        file.write_text(f"#!/bin/sh\necho {name} >>{bait.marker}\n")
        file.chmod(0o755)
    bait.run([str(launcher), "check"], PATH=f".::{os.environ['PATH']}")
    assert bait.taken == []

"""The daemon's package is not removed while jobs share GPUs of the node (sharing_jobs.sh)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "packaging" / "sharing_jobs.sh"


def removes(tmp_path: Path, status: str, active: bool = True) -> subprocess.CompletedProcess[str]:
    """Where gpu-leasectl says `status`."""
    (tmp_path / "status.json").write_text(status)
    programs = {
        "systemctl": f"exit {0 if active else 3}",
        "gpu-leasectl": f"cat {tmp_path}/status.json",
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return subprocess.run(
        ["sh", "-c", f"set -e; . {SCRIPT}; refuse_while_jobs_share; echo removed"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
    )


def with_tenants(*jobs: int) -> str:
    return json.dumps({"tenants": [{"job_id": job} for job in jobs], "strays": {"job_id": 99}})


def test_jobs_that_share_keep_the_daemon(tmp_path: Path) -> None:
    done = removes(tmp_path, with_tenants(12, 7))
    assert (done.returncode, done.stdout) == (1, "")
    assert "jobs share GPUs of this node: 7 12." in done.stderr
    assert "or end them (scancel 7 12)" in done.stderr


@pytest.mark.parametrize("said", [with_tenants(), "", "no JSON"])
def test_without_jobs_or_an_answer_it_is_removed(tmp_path: Path, said: str) -> None:
    done = removes(tmp_path, said)
    assert (done.returncode, done.stdout, done.stderr) == (0, "removed\n", "")


def test_a_daemon_that_was_stopped_is_not_asked(tmp_path: Path) -> None:
    done = removes(tmp_path, with_tenants(12), active=False)
    assert (done.returncode, done.stdout) == (0, "removed\n")

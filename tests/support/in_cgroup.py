"""Starts processes that are in a cgroup before they do anything."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import ROOT


def start_in(
    cgroup: Path,
    command: Sequence[str],
    env: Mapping[str, str],
    user: str | None,
    ends: contextlib.ExitStack,
) -> subprocess.Popen[str]:
    """A program that reads a line before all else: it gets that once it is in the cgroup.

    user: None: this process' own. ends: it is killed then.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, user=user
    )
    ends.callback(process.communicate)
    ends.callback(process.kill)
    cgroup.mkdir(parents=True, exist_ok=True)
    (cgroup / "cgroup.procs").write_text(str(process.pid))
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process

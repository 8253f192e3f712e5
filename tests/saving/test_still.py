"""What becomes of a save whose processes are not what the daemon has said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leased.base.errors import Refused
from leased.saving import still
from leased.saving.still import StillJob


def test_a_process_that_has_just_ended_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the job goes on."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    asked: list[str] = []

    def ask(_: Path, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["op"])
        return {"state": "listed", "why": "", "processes": [[os.getpid(), 0], [ended.pid, 0]]}

    monkeypatch.setattr(still, "ask", ask)
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(Refused, match="has ended"), StillJob(Path("/nowhere"), 1):
        pass
    assert asked[-1] == "saved"
    assert sorted(Path("/proc/self/fd").iterdir()) == before

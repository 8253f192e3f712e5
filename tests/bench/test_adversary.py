"""The adversary's benchmark says what it has not looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from leased import policy
from tests.bench import adversary


def test_policies_for_which_no_time_is_left_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["adversary", "--seconds", "0"])
    monkeypatch.setattr(adversary, "write", lambda _, measure: measure(Path()))
    with pytest.raises(SystemExit, match=f"no time was left for {', '.join(policy.names())}:"):
        adversary.main()

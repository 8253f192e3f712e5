"""gpu-leasectl against the real daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leased.cli import ctl
from tests.slurm.leased import Leased


class Ctl:
    """gpu-leasectl in this process."""

    def __init__(self, leased: Leased, capsys: pytest.CaptureFixture[str]):
        self.leased = leased
        self.capsys = capsys
        self.error = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        """Its standard output; code: the exit status that it must have."""
        self.capsys.readouterr()
        assert ctl.main(["--config", str(self.leased.config), *words]) == code
        said = self.capsys.readouterr()
        self.error = said.err
        return said.out

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def state(self, job: int) -> str | None:
        """Of a tenant, once it is one."""
        tenants = self.json("status")["tenants"]
        return next((str(t["state"]) for t in tenants if t["job_id"] == job), None)

    def device(self, index: int = 0) -> dict[str, Any]:
        return dict(self.json("status")["devices"][index])


@pytest.fixture
def gpuctl(leased: Leased, capsys: pytest.CaptureFixture[str]) -> Ctl:
    return Ctl(leased, capsys)


@pytest.fixture
def kept(kept_leased: Leased, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """For tests that leave the daemon as it is."""
    return Ctl(kept_leased, capsys)

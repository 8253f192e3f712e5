"""slurmctld says the same through pyslurm as by its commands, of jobs and nodes of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

import pytest

from leased.slurm import asking, by_pyslurm
from leased.slurm.asking import Asking
from tests.matrix.record_answers import put_jobs
from tests.slurm.cluster import PrivateSlurm, slurm_version
from tests.support.work_dir import work_dir

WHY_NOT = by_pyslurm.why_not(slurm_version())


@pytest.fixture(scope="module")
def slurm() -> Iterator[PrivateSlurm]:
    made = PrivateSlurm(work_dir() / "slurm", nodes=2, gpus=2, gpu_type="a", plugin=None)
    with made:
        put_jobs(made)
        yield made


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("what", ["jobs", "nodes"])
def test_both_say_the_same(
    slurm: PrivateSlurm, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    through, by = (getattr(Asking(slurm.env, why), what)() for why in ("", "both are asked"))
    assert not caplog.records, "pyslurm was asked"
    assert len(by.found) >= 2
    assert sorted(through.found, key=repr) == sorted(by.found, key=repr)
    assert through.not_understood == by.not_understood == 0


@pytest.mark.parametrize("end", ["raise SystemExit('fatal: a fault')", "import os; os.abort()"])
def test_commands_are_asked_where_pyslurm_fails(
    slurm: PrivateSlurm,
    end: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(asking, "PYSLURM", end)
    asked = Asking(slurm.env, "")
    for _ in range(2):
        assert {job.job_id for job in asked.jobs().found} == {
            job.job_id for job in Asking(slurm.env, "by commands").jobs().found
        }
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("pyslurm gives no answer, so Slurm's commands are asked for 10 minutes")


@pytest.mark.parametrize(
    ("version", "here", "why"),
    [
        ("", (22, 5), "pyslurm is not installed"),
        ("odd", (22, 5), "pyslurm does not say its release"),
        ("22.5.3", (24, 11), "pyslurm is for Slurm 22.05, and here is 24.11"),
        ("22.5.3", None, "pyslurm is for Slurm 22.05, and here is an unknown one"),
        ("24.11.0", (24, 11), "pyslurm for Slurm 24.11 does not say which GPU's shards a job has"),
        ("22.5.3", (22, 5), ""),
    ],
)
def test_who_is_asked(
    version: str,
    here: tuple[int, int] | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(_: str) -> str:
        if not version:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(metadata, "version", said)
    assert by_pyslurm.why_not(here) == why

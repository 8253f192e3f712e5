"""gpu-leasectl check: what is wrong with dcgm-exporter's directory is found, and has a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.api.answers import Status
from leased.cli.checks import metrics
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.config.config import Config, MetricsConfig
from leased.metrics.job_mapping import JobMapping
from leased.slurm.slurmconf import SlurmConf
from tests.cli.fake_status import status


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FOLLOWS_S", 0.0)


def look(directory: Path | None, said: Status | None = None) -> Finding:
    config = Config(metrics=MetricsConfig(job_mapping_dir=directory))
    nowhere = Path("/nonexistent")
    site = Site(config, nowhere, nowhere, SlurmConf(None), {}, status=said)
    (found,) = metrics.of_job_mapping(site)
    assert found.id == "job-mapping"
    assert bool(found.remedy) == (found.level != OK)
    return found


def test_no_directory_is_in_order() -> None:
    assert look(None).level == OK


def test_a_directory_with_files_is_in_order(tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    JobMapping(directory).follow(status())
    assert look(directory, status()) == Finding(
        "job-mapping", OK, f"metrics.job_mapping_dir {directory} is there"
    )
    assert look(directory).level == OK


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    assert "does not exist" in look(tmp_path / "none").text
    tmp_path.chmod(0o755)
    assert look(tmp_path).level == OK, "it is not known whether there are jobs"
    found = look(tmp_path, status())
    assert found.level == WARNING
    assert "has written nothing" in found.text
    assert "systemctl enable --now gpu-leased-metrics" in found.remedy


def test_a_directory_that_others_cannot_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert look(tmp_path).remedy == f"run chmod 755 {tmp_path}"
    tmp_path.chmod(0o777)
    assert "others may write to metrics.job_mapping_dir" in look(tmp_path).text
    file = tmp_path / "file"
    file.touch()
    assert "is not a directory" in look(file).text

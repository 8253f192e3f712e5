"""gpu-leasectl check: what is wrong with the endpoint, or with dcgm-exporter's directory."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from leased.api.answers import Status
from leased.cli.checks import metrics
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.config.config import Config, MetricsConfig
from leased.config.listen_address import ListenAddress
from leased.metrics import exporter
from leased.metrics.job_mapping import JobMapping
from leased.slurm.slurmconf import SlurmConf
from tests.cli.fake_status import status
from tests.metrics.test_server import serving


def site(settings: MetricsConfig, said: Status | None = None) -> Site:
    nowhere = Path("/nonexistent")
    return Site(Config(metrics=settings), nowhere, nowhere, SlurmConf(None), {}, status=said)


def look(address: ListenAddress | None) -> Finding:
    (found,) = metrics.findings(site(MetricsConfig(listen=address)))
    assert found.id == "metrics"
    assert bool(found.remedy) == (found.level != OK)
    return found


def test_no_metrics_are_in_order() -> None:
    assert look(None).level == OK


def test_an_endpoint_of_ours_is_in_order(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "WAIT_S", 60.0)
    address = ListenAddress(path=short_dir / "m.sock")
    with serving(address):
        assert look(address) == Finding("metrics", OK, f"gpu-leased-metrics answers at {address}")


def test_an_address_where_nobody_listens_is_named(short_dir: Path) -> None:
    found = look(ListenAddress(path=short_dir / "m.sock"))
    assert found.level == WARNING
    assert found.text == (
        f"nobody listens at {short_dir}/m.sock (metrics.listen): No such file or directory"
    )


def test_a_port_of_somebody_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing at all, as a server of another protocol may."""
    monkeypatch.setattr(metrics, "WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = look(ListenAddress("127.0.0.1", other.getsockname()[1]))
    assert found.level == WARNING
    assert "is not gpu-leased-metrics" in found.text


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "LIBRARY", "prometheus_client_that_is_not_there")
    found = look(ListenAddress("127.0.0.1", 1))
    assert found.level == WARNING
    assert found.remedy == "apt install python3-prometheus-client"


# -- dcgm-exporter's directory -------------------------------------------------------------


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FOLLOWS_S", 0.0)


def mapped(directory: Path | None, said: Status | None = None) -> Finding:
    config = MetricsConfig(job_mapping_dir=directory)
    (found,) = metrics.of_job_mapping(site(config, said))
    assert found.id == "job-mapping"
    assert bool(found.remedy) == (found.level != OK)
    return found


def test_no_directory_is_in_order() -> None:
    assert mapped(None).level == OK


def test_a_directory_with_files_is_in_order(tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    JobMapping(directory).follow(status())
    assert mapped(directory, status()) == Finding(
        "job-mapping", OK, f"metrics.job_mapping_dir {directory} is there"
    )
    assert mapped(directory).level == OK


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    assert "does not exist" in mapped(tmp_path / "none").text
    tmp_path.chmod(0o755)
    assert mapped(tmp_path).level == OK, "it is not known whether there are jobs"
    found = mapped(tmp_path, status())
    assert found.level == WARNING
    assert "has written nothing" in found.text
    assert "systemctl enable --now gpu-leased-metrics" in found.remedy


def test_a_directory_that_others_cannot_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert mapped(tmp_path).remedy == f"run chmod 755 {tmp_path}"
    tmp_path.chmod(0o777)
    assert "others may write to metrics.job_mapping_dir" in mapped(tmp_path).text
    file = tmp_path / "file"
    file.touch()
    assert "is not a directory" in mapped(file).text

"""gpu-leasectl check: what is wrong with the endpoint is found, and has a remedy."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from leased.cli.checks import metrics
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.config.config import Config, MetricsConfig
from leased.config.listen_address import ListenAddress
from leased.metrics import exporter
from leased.slurm.slurmconf import SlurmConf
from tests.metrics.test_server import serving


def look(address: ListenAddress | None) -> Finding:
    config = Config(metrics=MetricsConfig(listen=address))
    nowhere = Path("/nonexistent")
    (found,) = metrics.findings(Site(config, nowhere, nowhere, SlurmConf(None), {}))
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

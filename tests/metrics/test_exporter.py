"""gpu-leased-metrics with a real daemon, one that hangs and one that restarts; and without any."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

from leased.api.client import ask
from leased.base.errors import Refused
from leased.cli.checks import metrics
from leased.config.listen_address import ListenAddress
from leased.metrics import exporter
from tests.metrics import dashboards
from tests.metrics.test_server import scrape
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.tenant import register

JOB = 7


def answers(path: Path) -> bool:
    with suppress(OSError):
        return metrics.is_ours(ListenAddress(path=path), 60)
    return False


# It asks the daemon more often, and gives one that hangs up sooner.
HURRIED = ("leased.metrics.source.FRESH_S=0.1", "leased.metrics.source.ANSWER_S=1")


@contextmanager
def exporting(config: Path, path: Path) -> Iterator[None]:
    """gpu-leased-metrics, as soon as it answers."""
    with (config.parent / "metrics.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.slurm.hurried", *HURRIED),
                *("--", "leased.metrics.exporter", "--config", str(config)),
            ],
            stderr=log,
        )
        try:
            wait_until("an answer", lambda: answers(path) or process.poll() is not None)
            assert process.poll() is None, (config.parent / "metrics.log").read_text()
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0
    assert not path.exists()
    assert not list((path.parent / "jobs").iterdir())


def text(path: Path) -> str:
    """A scrape; "" where it was cut off, as a machine that stands still may have it."""
    with suppress(OSError, http.client.HTTPException):
        code, said = scrape(path)
        assert code == 200
        return said
    return ""


def samples(path: Path) -> dict[str, list[dict[str, str]]]:
    """Labels of all samples of a scrape, by name."""
    found: dict[str, list[dict[str, str]]] = {}
    said = text(path)
    for family in parser.text_string_to_metric_families(said) if said else ():
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def is_down(path: Path) -> bool:
    return "\ngpu_lease_up 0.0\n" in text(path)


def jobs(path: Path) -> set[str]:
    return {labels["job_id"] for labels in samples(path).get("gpu_lease_held_seconds_total", [])}


def has_no_job(path: Path) -> bool:
    said = samples(path)
    return "gpu_lease_uptime_seconds" in said and "gpu_lease_held_seconds_total" not in said


def test_a_real_daemon_that_hangs_and_restarts(leased: Leased, short_dir: Path) -> None:
    path = short_dir / "m.sock"
    with leased.config.open("a") as file:
        file.write(f'[metrics]\nlisten = "{path}"\njob_mapping_dir = "{short_dir}/jobs"\n')
    register(leased.admin_socket, JOB)
    with exporting(leased.config, path):
        wait_until("the job", lambda: jobs(path) == {str(JOB)})
        # NVML says how busy the GPU is a little after the daemon's start.
        wait_until("all that the dashboard shows", lambda: not dashboards.unknown(samples(path)))
        mapped = short_dir / "jobs" / "0"
        wait_until(
            "dcgm-exporter's file", lambda: mapped.exists() and mapped.read_text() == f"{JOB}\n"
        )

        assert leased.daemon is not None
        pid = leased.daemon.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until("a scrape to say that it hangs", lambda: is_down(path))
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until("it to answer again", lambda: jobs(path) == {str(JOB)})

        leased.kill()
        wait_until("a scrape to say that it is gone", lambda: is_down(path))
        leased.start()
        wait_until("the daemon after it", lambda: jobs(path) == {str(JOB)})
        ask(leased.admin_socket, {"op": "job_end", "job_id": JOB})
        wait_until("the job's series to end", lambda: has_no_job(path))


# -- what keeps it from running ------------------------------------------------------------


def refusal(tmp_path: Path, tables: str) -> Refused:
    file = tmp_path / "gpu-leased.toml"
    file.write_text(tables)
    with pytest.raises(Refused) as caught:
        exporter.run(file, threading.Event())
    assert "\n" not in caught.value.sentence()
    assert caught.value.hint
    return caught.value


def test_it_is_off_by_default(tmp_path: Path) -> None:
    said = refusal(tmp_path, "")
    assert isinstance(said, exporter.Unusable)
    assert said.sentence().startswith(f"metrics.listen of {tmp_path}/gpu-leased.toml is empty; ")


def test_a_configuration_at_fault_is_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, '[metrics]\nlisten = "0.0.0.0:9747"\n')
    assert isinstance(said, exporter.Unusable)
    assert "metrics.listen = '0.0.0.0:9747' is not on loopback" in str(said)


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "LIBRARY", "prometheus_client_that_is_not_there")
    said = refusal(tmp_path, '[metrics]\nlisten = "127.0.0.1:9747"\n')
    assert isinstance(said, exporter.Unusable)
    assert said.hint == "apt install python3-prometheus-client"


def test_an_address_that_cannot_be_had_may_be_tried_again(tmp_path: Path) -> None:
    said = refusal(tmp_path, '[metrics]\nlisten = "/nonexistent/m.sock"\n')
    assert not isinstance(said, exporter.Unusable)
    assert "/nonexistent/m.sock cannot be had: No such file or directory" in str(said)

"""A GPU that is lost takes nothing else with it: the daemon starts and serves the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.ctl import ask
from leased.errors import Refused
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.tenant import register


@pytest.fixture
def gpus(short_dir: Path) -> Iterator[EmulatedGpu]:
    """Three emulated GPUs."""
    with EmulatedGpu(short_dir / "gpu", model="emu-h200-tiny", devices=3) as gpu:
        yield gpu


@pytest.fixture
def leased(short_dir: Path, gpus: EmulatedGpu) -> Iterator[Leased]:
    """gpu-leased on them."""
    with Leased(short_dir / "leased", short_dir / "run", os.environ | gpus.env) as daemon:
        yield daemon


def status(leased: Leased) -> dict[str, Any]:
    return ask(leased.admin_socket, {"op": "status"})


def restart(leased: Leased) -> None:
    leased.kill()
    leased.start()


def test_the_daemon_starts_with_the_gpus_that_work(leased: Leased, gpus: EmulatedGpu) -> None:
    register(leased.admin_socket, 7, gpus=[1])
    register(leased.admin_socket, 8, gpus=[2])
    uuids = {device["index"]: device["uuid"] for device in status(leased)["devices"]}
    gpus.fail(1, "lost")
    restart(leased)
    shown = status(leased)
    assert {d["index"]: d["uuid"] for d in shown["devices"]} == {0: uuids[0], 2: uuids[2]}
    assert [tenant["job_id"] for tenant in shown["tenants"]] == [8]
    used = ask(leased.admin_socket, {"op": "usage", "job_id": 7})["usage"]
    assert list(used) == [uuids[1]], "what the job had until then is not forgotten"
    with pytest.raises(Refused, match="GPU 1 of Slurm is not one of"):
        register(leased.admin_socket, 9, gpus=[1])
    register(leased.admin_socket, 10, gpus=[2])


def test_a_gpu_that_is_back_is_used_after_a_restart(leased: Leased, gpus: EmulatedGpu) -> None:
    gpus.fail(0, "lost")
    restart(leased)
    assert [device["index"] for device in status(leased)["devices"]] == [1, 2]
    gpus.fail(0, "repaired")
    restart(leased)
    assert [device["index"] for device in status(leased)["devices"]] == [0, 1, 2]
    register(leased.admin_socket, 7, gpus=[0])


def test_no_gpu_that_works(leased: Leased, gpus: EmulatedGpu) -> None:
    for device in range(3):
        gpus.fail(device, "lost")
    leased.kill()
    with pytest.raises(RuntimeError, match="no NVIDIA GPU that works"):
        leased.start()

"""Slurm's index of a GPU is that of its own files, whatever NVML's order is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.gpus.devices import Gpu
from leased.slurm import slurm_gpus
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.tenant import register

HOST = socket.gethostname().partition(".")[0]
# NVML's numbers (PCI addresses) run against the minor numbers, as on some machines they do.
GPUS = [Gpu(n, f"GPU-{n}", "H200", 1 << 30, 1 << 30, minor=n, number=3 - n) for n in range(4)]


def write(folder: Path, gres: str, slurm: str = "", cgroup: str = "ConstrainDevices=yes") -> Path:
    path = folder / "slurm.conf"
    path.write_text(
        f"TaskPlugin=task/affinity,task/cgroup\nNodeName={HOST} Gres={slurm or 'gpu:4,shard:8'}\n"
    )
    (folder / "gres.conf").write_text(gres)
    (folder / "cgroup.conf").write_text(cgroup)
    return path


def indices(path: Path) -> Mapping[str, int]:
    said = slurm_gpus.read(path)
    assert said is not None
    slurms = slurm_gpus.merged(said, GPUS)
    return slurm_gpus.indices(slurms, GPUS, constrained=said.constrained)


def order(path: Path) -> list[str]:
    """The device of each of Slurm's indices, by its minor number."""
    found = indices(path)
    assert sorted(found.values()) == list(range(len(found)))
    return [uuid.removeprefix("GPU-") for uuid, _ in sorted(found.items(), key=lambda i: i[1])]


CONSTRAINED = {
    # gres.conf and Gres= of slurm.conf: the device files by index
    "all": ("Name=gpu File=/dev/nvidia[0-3]", "", "0123"),
    "one that is not the first": ("Name=gpu File=/dev/nvidia1", "gpu:1", "1"),
    "two of the middle": ("Name=gpu File=/dev/nvidia[1-2]", "gpu:2", "12"),
    "another order": ("Name=gpu File=/dev/nvidia[2,0]\nName=gpu File=/dev/nvidia1", "gpu:3", "201"),
    "one that NVML does not show": ("Name=gpu File=/dev/nvidia[2,3]", "gpu:2", "23"),
    "detected by NVML": ("AutoDetect=nvml\nName=shard Count=8", "", "3210"),
    "detected by NVML, some": ("AutoDetect=nvml\nName=gpu File=/dev/nvidia[0,2]", "gpu:2", "20"),
    "detected by NVML, fewer in slurm.conf": ("AutoDetect=nvml", "gpu:2", "10"),
    "detected by the driver's files": ("AutoDetect=nvidia", "", "0123"),
}


@pytest.mark.parametrize("case", CONSTRAINED)
def test_where_devices_are_constrained_the_files_count(tmp_path: Path, case: str) -> None:
    gres, slurm, wanted = CONSTRAINED[case]
    assert "".join(order(write(tmp_path, gres, slurm))) == wanted


@pytest.mark.parametrize("cgroup", ["", "ConstrainDevices=no", "# ConstrainDevices=yes"])
@pytest.mark.parametrize("gres", ["Name=gpu File=/dev/nvidia1", "AutoDetect=nvml"])
def test_where_they_are_not_cuda_counts(tmp_path: Path, gres: str, cgroup: str) -> None:
    assert "".join(order(write(tmp_path, gres, cgroup=cgroup))) == "3210"


def test_without_the_cgroup_plugin_nothing_is_constrained(tmp_path: Path) -> None:
    path = write(tmp_path, "Name=gpu File=/dev/nvidia1")
    path.write_text(path.read_text().replace("task/cgroup", "task/none"))
    assert "".join(order(path)) == "3210"


def test_a_device_file_without_a_number_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "Name=gpu File=/dev/gpu-a", "gpu:1")
    with pytest.raises(Refused, match=r"the device file /dev/gpu-a of gres\.conf has no number"):
        indices(path)


def test_the_files_of_a_node_that_slurm_conf_does_not_have(tmp_path: Path) -> None:
    """`slurmd -Z` gives it the host's name."""
    path = write(tmp_path, f"NodeName={socket.gethostname()} Name=gpu File=/dev/nvidia[2,1]")
    path.write_text(path.read_text().replace(f"NodeName={HOST}", "NodeName=other"))
    assert "".join(order(path)) == "21"


def test_files_that_say_nothing_of_gpus(tmp_path: Path) -> None:
    path = write(tmp_path, "NodeName=other Name=gpu File=/dev/nvidia0")
    assert slurm_gpus.read(path) is None
    (tmp_path / "gres.conf").unlink()
    assert slurm_gpus.read(path) is None


# -- the daemon --------------------------------------------------------------------


@pytest.fixture
def leased(short_dir: Path) -> Iterator[Leased]:
    """gpu-leased on two emulated GPUs, with files of Slurm's that a test writes."""
    (short_dir / "slurm").mkdir()
    with EmulatedGpu(short_dir / "gpu", model="emu-h200-tiny", devices=2) as gpu:
        env = os.environ | gpu.env | {"SLURM_CONF": str(short_dir / "slurm" / "slurm.conf")}
        made = Leased(short_dir / "leased", short_dir / "run", env)
        yield made
        made.stop()


def devices(leased: Leased) -> dict[int, str]:
    shown: list[dict[str, Any]] = ask(leased.admin_socket, {"op": "status"})["devices"]
    return {device["index"]: device["uuid"] for device in shown}


def gang(leased: Leased, job: int, gpus: list[int]) -> set[str]:
    register(leased.admin_socket, job, gpus=gpus)
    return set(ask(leased.admin_socket, {"op": "usage", "job_id": job})["usage"])


def test_a_job_leases_the_gpu_that_it_runs_on(leased: Leased, short_dir: Path) -> None:
    leased.start()
    uuids = devices(leased)
    assert list(uuids) == [0, 1]
    # The files come, or change, under the daemon: as slurmd's start on a configless node.
    write(short_dir / "slurm", "Name=gpu File=/dev/nvidia1", "gpu:1")
    assert gang(leased, 7, [0]) == {uuids[1]}
    assert devices(leased) == {0: uuids[1]}
    with pytest.raises(Refused, match="GPU 1 of Slurm is not one of the 1 that NVML shows"):
        register(leased.admin_socket, 8, gpus=[1])
    with pytest.raises(Refused, match="no device 1"):
        ask(leased.admin_socket, {"op": "drain", "device": "1"})
    write(short_dir / "slurm", "Name=gpu File=/dev/nvidia[1,0]", "gpu:2")
    assert gang(leased, 9, [1]) == {uuids[0]}
    leased.kill()
    leased.start()
    assert devices(leased) == {0: uuids[1], 1: uuids[0]}
    assert len(ask(leased.admin_socket, {"op": "status"})["tenants"]) == 2


def test_settings_of_a_device_are_those_of_its_index(leased: Leased, short_dir: Path) -> None:
    leased.config.write_text(leased.config.read_text() + '[device.0]\nmemory = "50%"\n')
    write(short_dir / "slurm", "Name=gpu File=/dev/nvidia[1,0]", "gpu:2")
    leased.start()
    shown = ask(leased.admin_socket, {"op": "status"})["devices"]
    assert shown[0]["usable_bytes"] < 0.6 * shown[1]["usable_bytes"]


def test_a_job_is_refused_where_nobody_can_tell(leased: Leased, short_dir: Path) -> None:
    write(short_dir / "slurm", "Name=gpu File=/dev/gpu-a", "gpu:1")
    leased.start()
    for _ in range(2):
        with pytest.raises(
            Refused, match="which GPU Slurm means by an index cannot be told: the device"
        ):
            register(leased.admin_socket, 7, gpus=[0])
    assert leased.log.read_text().count("cannot be told") == 1
    write(short_dir / "slurm", "AutoDetect=nvml", "gpu:2")
    register(leased.admin_socket, 7, gpus=[0])

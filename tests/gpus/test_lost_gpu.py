"""A GPU that is lost, or in a mode that nobody can share, takes nothing else with it."""

from __future__ import annotations

from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import LOOKS_OFTEN, Leased
from tests.slurm.processes import wait_until
from tests.support.children import children_of
from tests.support.tenant import register

pytestmark = [
    pytest.mark.emulated(model="emu-h200-tiny", devices=3),
    pytest.mark.daemon(hurried=LOOKS_OFTEN),
]


def status(leased: Leased) -> dict[str, Any]:
    return ask(leased.admin_socket, {"op": "status"})


def faulty(leased: Leased) -> list[int]:
    """The devices that are said to have a fault, and are said to be nothing else."""
    devices = status(leased)["devices"]
    assert all((d["mode"] == "faulty") == (d["fault"] is not None) for d in devices)
    assert all(d["why"] == d["fault"] for d in devices if d["fault"])
    return [d["index"] for d in devices if d["fault"]]


def restart(leased: Leased) -> None:
    leased.kill()
    leased.start()


def refused(leased: Leased, gpu: int, words: str) -> None:
    with pytest.raises(Refused, match=f"GPU {gpu} takes no new jobs: {words}"):
        register(leased.admin_socket, 99, gpus=[gpu])


def said(leased: Leased, words: str) -> int:
    return leased.log.read_text().count(words)


def test_an_idle_gpu_that_is_lost_is_seen_and_used_again_when_it_is_back(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    register(leased.admin_socket, 7, gpus=[0])
    emulated_gpu.fail(1, "lost")
    wait_until("it to be seen", lambda: faulty(leased) == [1])
    refused(leased, 1, "NVML says: GPU is lost")
    register(leased.admin_socket, 8, gpus=[2])
    emulated_gpu.fail(1, "repaired")
    wait_until("it to be in order", lambda: faulty(leased) == [])
    register(leased.admin_socket, 9, gpus=[1])
    assert said(leased, "GPU 1 (") == 2, "each thing is said once"


def test_the_jobs_of_a_lost_gpu_go_on(leased: Leased, emulated_gpu: EmulatedGpu) -> None:
    """What fails in them is theirs to see; nothing of ours ends them."""
    register(leased.admin_socket, 7, gpus=[1])
    emulated_gpu.fail(1, "lost")
    wait_until("it to be seen", lambda: faulty(leased) == [1])
    register(leased.admin_socket, 7, gpus=[1])  # another step of it
    assert [tenant["job_id"] for tenant in status(leased)["tenants"]] == [7]
    refused(leased, 1, "NVML says: GPU is lost")
    ask(leased.admin_socket, {"op": "job_end", "job_id": 7})
    assert status(leased)["tenants"] == []


def test_a_daemon_that_starts_while_a_gpu_is_lost_knows_it_from_before(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    register(leased.admin_socket, 7, gpus=[1])
    register(leased.admin_socket, 8, gpus=[2])
    before = {device["index"]: device["uuid"] for device in status(leased)["devices"]}
    emulated_gpu.fail(1, "lost")
    restart(leased)
    assert {d["index"]: d["uuid"] for d in status(leased)["devices"]} == before
    assert faulty(leased) == [1]
    assert [tenant["job_id"] for tenant in status(leased)["tenants"]] == [7, 8]
    refused(leased, 1, "NVML says: GPU is lost")
    register(leased.admin_socket, 10, gpus=[2])
    emulated_gpu.fail(1, "repaired")
    wait_until("it to be in order", lambda: faulty(leased) == [])
    register(leased.admin_socket, 11, gpus=[1])


def test_a_daemon_that_never_saw_the_lost_gpu_starts_with_the_others(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    (leased.prefix / "state" / "gpus.json").unlink()
    emulated_gpu.fail(1, "lost")
    restart(leased)
    assert [device["index"] for device in status(leased)["devices"]] == [0, 2]
    with pytest.raises(Refused, match="GPU 1 of Slurm is not one of"):
        register(leased.admin_socket, 9, gpus=[1])
    register(leased.admin_socket, 10, gpus=[2])
    assert said(leased, "GPU 1 of NVML is left out: NVML says: GPU is lost") == 1


def test_a_daemon_starts_while_all_gpus_are_lost(leased: Leased, emulated_gpu: EmulatedGpu) -> None:
    for device in range(3):
        emulated_gpu.fail(device, "lost")
    restart(leased)
    assert faulty(leased) == [0, 1, 2]
    leased.kill()
    (leased.prefix / "state" / "gpus.json").unlink()
    with pytest.raises(RuntimeError, match="no NVIDIA GPU that works"):
        leased.start()


@pytest.mark.parametrize(
    ("kind", "words"),
    [("mig", "it is split by MIG"), ("exclusive", "it lets only one process in")],
)
def test_a_gpu_in_a_mode_that_nobody_can_share(
    leased: Leased, emulated_gpu: EmulatedGpu, kind: str, words: str
) -> None:
    emulated_gpu.nvml({2: kind})
    wait_until("it to be seen", lambda: faulty(leased) == [2])
    refused(leased, 2, words)
    restart(leased)
    refused(leased, 2, words)
    register(leased.admin_socket, 7, gpus=[0])
    emulated_gpu.nvml({})
    wait_until("it to be in order", lambda: faulty(leased) == [])
    register(leased.admin_socket, 8, gpus=[2])


def test_nvml_is_closed_while_all_devices_are_drained(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """So that the driver can be unloaded under the daemon, and another one loaded."""

    def children() -> list[int]:
        assert leased.daemon is not None
        return children_of(leased.daemon.process.pid)

    register(leased.admin_socket, 7, gpus=[0])
    wait_until("NVML to be asked", lambda: status(leased)["devices"][0]["busy_percent"] is not None)
    assert len(children()) == 1
    ask(leased.admin_socket, {"op": "drain", "device": "all"})
    wait_until("nothing to be open", lambda: children() == [])
    emulated_gpu.nvml({"all": "error"})  # there is no driver now
    ask(leased.admin_socket, {"op": "resume", "device": "all"})
    wait_until("it to be missed", lambda: status(leased)["nvml_fault"] is not None)
    emulated_gpu.nvml({})
    wait_until("it to answer", lambda: status(leased)["nvml_fault"] is None)
    assert faulty(leased) == []
    register(leased.admin_socket, 8, gpus=[1])

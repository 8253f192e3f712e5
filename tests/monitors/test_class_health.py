"""How well GPUs are for offline jobs: what follows for jobs that come, and for those there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leased.classes.health import State
from leased.config.config import Config
from leased.gpus.devices import Gpu
from leased.gpus.nvml_answers import seen
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.class_health import ClassHealth
from leased.monitors.device_monitor import DeviceMonitor
from leased.slurm import eviction
from leased.slurm.commands import Slurm
from tests.support.given import given

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
S = 1_000_000_000


class Node:
    """A GPU whose clock is low, and an online and two offline jobs on it."""

    def __init__(self, unhealthy: str = "evict") -> None:
        self.now = 0
        self.evicted: list[tuple[str, str, float, int]] = []
        self.leases = Leases([Gpu(0, UUID, "fake", 1 << 34, 1 << 34, 0)], lambda: self.now)
        for job, job_class in enumerate(("online", "offline", "none", "offline"), 1):
            self.leases.tenants.open(
                Tenant(job, 1000, given(job_class=job_class), {UUID: 1 << 30}, job=f"{job}_0")
            )
        self.clocks = {UUID: 0.9}
        devices = SimpleNamespace(
            clocks=self.clocks,
            busy={UUID: 90},
            lost_bits=lambda _: self.lost,
            take_xids=lambda _: self.xids,
        )
        self.lost: str | None = None
        self.xids: tuple[int, ...] = ()
        config = replace(Config().classes, unhealthy=unhealthy)
        self.health = ClassHealth(
            self.leases, cast(DeviceMonitor, devices), lambda: config, self.evict
        )

    async def evict(self, job: str, reason: str, pause_s: float, most: int) -> bool:
        self.evicted.append((job, reason, pause_s, most))
        return True

    def look(self, seconds: int) -> State:
        async def looks() -> None:
            for _ in range(seconds):
                self.now += S
                if evictions := self.health.beat():
                    await evictions

        asyncio.run(looks())
        return self.health.states[UUID].state


@pytest.mark.parametrize("unhealthy", ["log", "refuse", "evict"])
def test_what_follows_is_what_the_site_wants(unhealthy: str) -> None:
    node = Node(unhealthy)
    assert node.look(20) is State.HEALTHY
    assert node.health.refusal(UUID) is None
    node.clocks[UUID] = 0.2
    assert node.look(10) is State.UNHEALTHY
    refusal = node.health.refusal(UUID)
    assert refusal == (None if unhealthy == "log" else "unhealthy, its clock is low")
    assert node.look(100) is not State.HEALTHY
    wanted = [
        (job, "GPU 0 was over its limits, its clock is low", 60.0, 3) for job in ("2_0", "4_0")
    ]
    assert node.evicted == (wanted if unhealthy == "evict" else [])


def test_a_gpu_that_is_lost_or_loses_bits_is_disabled_and_nobody_is_evicted() -> None:
    node = Node()
    node.look(20)
    node.lost = "its memory has had 1 errors that were not corrected"
    assert node.look(1) is State.DISABLED
    assert node.health.refusal(UUID) == f"disabled, {node.lost}"
    node.lost = None
    node.leases.gpus.faults[UUID] = "it does not answer NVML"
    assert node.look(1) is State.DISABLED
    assert not node.evicted


@pytest.mark.parametrize(
    ("said", "wanted"),
    [([79, 13], (79, 13)), ([0, True, "79", 10**9, None], ()), ("79", ()), ([1] * 99, (1,) * 64)],
)
def test_errors_that_nvml_tells_of_are_numbers(said: Any, wanted: tuple[int, ...]) -> None:
    assert seen({"devices": {UUID: {"xids": said}}}, UUID, 1 << 30).xids == wanted


@pytest.mark.parametrize(
    ("clock", "wanted"),
    [([990, 1980], 0.5), ([2000, 1980], 1.0), ([1, 0], None), ("fast", None), ([True, 5], None)],
)
def test_clocks_of_nvml_are_parts_or_nothing(clock: Any, wanted: float | None) -> None:
    assert seen({"devices": {UUID: {"clock": clock}}}, UUID, 1 << 30).clock == wanted


# -- eviction by Slurm ----------------------------------------------------------------

RUNS = "JobId=7 JobName=x\n   JobState=RUNNING Reason=None\n   Requeue=1 Restarts=0 BatchFlag=1\n"


class FakeSlurm:
    """What scontrol says of a job; the commands that change something."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.did: list[tuple[str, ...]] = []

    async def run(self, *command: str) -> tuple[int, str, str]:
        if command[1] == "show":
            return 0, self.said, ""
        self.did.append(command[1:])
        return 0, "", ""


def evict(said: str, most: int = 3) -> list[tuple[str, ...]]:
    slurm = FakeSlurm(said)
    asyncio.run(eviction.evict(cast(Slurm, slurm), "7_1", "it [was] hot", 90.0, most))
    return slurm.did


def test_a_job_is_requeued_with_the_reason_and_begins_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "AGAIN_S", 0.0)
    assert evict(RUNS + "   Comment=mine [gpu-lease: old] \n") == [
        ("update", "jobid=7_1", "comment=mine [gpu-lease: it  was  hot]"),
        ("requeue", "7_1"),
        ("update", "jobid=7_1", "starttime=now+90"),
    ]


@pytest.mark.parametrize(
    "said",
    [
        RUNS.replace("RUNNING", "COMPLETING"),
        RUNS.replace("Requeue=1", "Requeue=0"),
        RUNS.replace("BatchFlag=1", "BatchFlag=0"),
        RUNS.replace("Restarts=0", "Restarts=3"),
        "",
    ],
)
def test_a_job_that_slurm_would_not_run_again_is_left_as_it_is(said: str) -> None:
    assert evict(said) == []


def test_a_comment_that_is_full_stays_as_it_was() -> None:
    full = "x" * (eviction.LONGEST - 3)
    assert eviction.with_reason(full, "it was hot") == full
    assert eviction.with_reason("", "it was hot") == "[gpu-lease: it was hot]"

"""What the search for processes without a lease keeps of a job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from leased.config.config import Config
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.monitors.process_monitor import ProcessMonitor
from leased.processes.identity import ProcessId, Step
from leased.processes.stepds import Stepds
from leased.slurm.commands import Slurm

SEVEN = ProcessId(7, 70)
GPU = Gpu(0, "GPU-0", "H200", 1 << 30, 1 << 30)


class Tenants(dict[int, SimpleNamespace]):
    def sharing(self, _: str) -> list[SimpleNamespace]:
        return list(self.values())


def test_who_ended_with_a_lease_is_forgotten_where_nothing_is_on_the_device() -> None:
    tenant = SimpleNamespace(
        gang=("GPU-0",), clients=[], cut_off={("GPU-0", SEVEN), ("GPU-1", SEVEN)}
    )
    leases = cast(Leases, SimpleNamespace(tenants=Tenants({1: tenant})))
    monitor = ProcessMonitor(leases, cast(Stepds, None), Slurm({}), Config())
    asyncio.run(monitor.look(GPU, {}))
    assert tenant.cut_off == {("GPU-1", SEVEN)}


def test_processes_of_jobs_without_a_connection() -> None:
    """7 is connected, 8 is a job's, 9 is of no job."""
    tenant = SimpleNamespace(gang=("GPU-0",), clients=[SimpleNamespace(pid=7)], cut_off=set())
    leases = cast(Leases, SimpleNamespace(tenants=Tenants({1: tenant})))
    steps = {7: Step(1, "0"), 8: Step(1, "0")}
    known = SimpleNamespace(step_of=steps.get)
    stepds = cast(Stepds, SimpleNamespace(known=lambda: known))
    monitor = ProcessMonitor(leases, stepds, Slurm({}), Config())
    assert monitor.unconnected(GPU, [7, 8, 9]) == {8}

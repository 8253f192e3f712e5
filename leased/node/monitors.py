"""The monitors of processes, devices and jobs, and how often each of them looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from leased.admin import host_memory
from leased.admin.jobs import Jobs
from leased.admin.user_limits import UserLimits
from leased.config.config import Config
from leased.connections.accounts import Accounts
from leased.connections.limits import Lines
from leased.gpus.discovery import Found
from leased.gpus.health import Health
from leased.gpus.nvml import Nvml
from leased.monitors import class_health, device_monitor, time_limits
from leased.monitors.class_health import ClassHealth
from leased.monitors.copies_ahead import LOOK_S as AHEAD_S
from leased.monitors.copies_ahead import CopiesAhead
from leased.monitors.device_monitor import DeviceMonitor
from leased.monitors.ended_jobs import EndedJobs
from leased.monitors.idle_jobs import LOOK_S as IDLE_S
from leased.monitors.idle_jobs import IdleJobs
from leased.monitors.process_monitor import ProcessMonitor
from leased.monitors.suspended_jobs import LOOK_S, SuspendedJobs
from leased.monitors.suspensions import ASK_S, Suspensions
from leased.monitors.time_limits import TimeLimits
from leased.mps.mps import Mps
from leased.node import rules_report
from leased.node.rules_report import RulesReport
from leased.node.tasks import Tasks
from leased.slurm.commands import Slurm
from leased.slurm.eviction import evict
from leased.slurm.slurmconf import suspend_grace_ns

CLUSTER_S = 60.0
REST_S = 1.0


class Node(Protocol):
    """What the monitors ask of the daemon."""

    @property
    def in_force(self) -> Config:
        """The configuration, which a reload may change."""

    def limits(self) -> UserLimits:
        """What users may choose."""

    def job_ended(self, job_id: int) -> None:
        """A job is over, and nobody has told the daemon."""


class Monitors:
    """start() begins their work.

    accounts: users pay for what their jobs make the monitors do. at_start: the configuration that
    the daemon has begun with. mps: its servers are no strays.
    """

    def __init__(
        self,
        jobs: Jobs,
        slurm: Slurm,
        nvml: Nvml,
        accounts: Accounts,
        *,
        at_start: Config,
        node: Node,
        mps: Mps,
    ):
        leases = self.leases = jobs.leases
        self.cluster = jobs.cluster
        self.slurm = slurm
        self.processes = ProcessMonitor(
            *(leases, jobs.stepds, slurm, at_start), spared=mps.is_server
        )
        self.health = Health(leases.gpus.faults)
        self.devices = DeviceMonitor(nvml, leases, self.processes, self.health)
        lines = Lines(time.monotonic)
        self.suspended = SuspendedJobs(leases, self.devices.percents, accounts, lines)
        self.suspensions = Suspensions(
            *(leases, jobs.stepds, slurm, accounts, lines), lambda: suspend_grace_ns(slurm.env)
        )
        self.idle_jobs = IdleJobs(
            leases, self.devices.percents, lambda: node.in_force.park_after_ns
        )
        self.copies_ahead = CopiesAhead(leases, lambda: host_memory.ahead_most(node.in_force))
        self.rules_report = RulesReport(
            slurm, lambda: node.in_force, node.limits, leases.gpus.slurms
        )
        self.time_limits = TimeLimits(leases)
        self.class_health = ClassHealth(
            leases, self.devices, lambda: node.in_force.classes, partial(evict, slurm)
        )
        self.ended_jobs = EndedJobs(
            *(leases, jobs.store, slurm, jobs.lives, node.job_ended), heard=self.time_limits.heard
        )

    def report(self, found: Found) -> None:
        """Log the faults that were found at the start; DeviceMonitor logs later ones."""
        if found.silent is not None:
            self.health.silent(found.silent)
        for gpu in self.leases.gpus.slurms():
            if gpu.uuid in found.faults:
                self.health.seen(gpu, found.faults[gpu.uuid], sure=True)

    def start(self, tasks: Tasks) -> None:
        """Begin to look. It goes on until the daemon ends."""
        tasks.start(self.ended_jobs.find)
        tasks.start(self._learn_cluster)
        tasks.every(self._of_jobs(LOOK_S), self.suspended.beat)
        tasks.every(self._of_jobs(LOOK_S), self.suspensions.beat)
        tasks.every(self._of_jobs(ASK_S), self.suspensions.ask)
        tasks.start(self.suspensions.watch)
        tasks.every(IDLE_S, self.idle_jobs.beat)
        # Behind those that ask NVML themselves: they hear of the time since the look before.
        tasks.every(self._of_devices, self.devices.beat)
        tasks.every(class_health.LOOK_S, self.class_health.beat)
        tasks.every(time_limits.LOOK_S, self.time_limits.beat)
        tasks.every(self._of_jobs(AHEAD_S), self.copies_ahead.beat)
        tasks.every(rules_report.LOOK_S, self.rules_report.beat)

    def _of_jobs(self, seconds: float) -> Callable[[], float]:
        """The pause between looks at jobs: so long, or longer while there is none."""
        return lambda: seconds if self.leases.tenants else REST_S

    def _of_devices(self) -> float:
        """The pause between looks at the devices."""
        rests = self.health.well and not self.leases.tenants
        return REST_S if rests else device_monitor.LOOK_S

    async def _learn_cluster(self) -> None:
        """Learn which Slurm cluster's jobs are served, again and again: that may change."""
        while True:
            await self.cluster.learn(self.slurm)
            await asyncio.sleep(CLUSTER_S)

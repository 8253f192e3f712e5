"""What jobs and GPUs did in the last minute, computed from successive answers to status. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.api.answers import Status, Tenant

WINDOW_S = 60.0


@dataclass(frozen=True)
class JobRates:
    """The parts of the last minute (or of the time since the first look) in which the job had
    the lease, and waited for it."""

    lease: float = 0.0
    wait: float = 0.0


@dataclass(frozen=True)
class GpuRates:
    """busy: the mean of what NVML said, in percent; None: it does not say. handoffs: a minute."""

    busy: float | None = None
    handoffs: float = 0.0


@dataclass
class Rates:
    """Takes one status after the other, and forgets those older than WINDOW_S."""

    jobs: Mapping[int, JobRates] = field(default_factory=dict)
    gpus: Mapping[str, GpuRates] = field(default_factory=dict)
    _seen: deque[tuple[float, Status]] = field(default_factory=deque)

    def take(self, answer: Status, now: float) -> None:
        """now: seconds of a clock that does not step."""
        self._seen.append((now, answer))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        passed = now - since
        old = {tenant["job_id"]: tenant for tenant in before["tenants"]}
        self.jobs = {
            tenant["job_id"]: _job(old.get(tenant["job_id"]), tenant, passed)
            for tenant in answer["tenants"]
        }
        self.gpus = {
            device["uuid"]: self._gpu(device["uuid"], old, answer, passed)
            for device in answer["devices"]
        }

    def _gpu(self, uuid: str, old: Mapping[int, Tenant], answer: Status, passed: float) -> GpuRates:
        said = [
            device["busy_percent"]
            for _, seen in self._seen
            for device in seen["devices"]
            if device["uuid"] == uuid and device["busy_percent"] is not None
        ]
        busy = sum(said) / len(said) if said else None
        if passed <= 0:
            return GpuRates(busy)
        grown = sum(_grown(old.get(t["job_id"]), t, uuid, "handoffs") for t in answer["tenants"])
        return GpuRates(busy, grown * 60 / passed)


def _job(before: Tenant | None, tenant: Tenant, passed: float) -> JobRates:
    if before is None or passed <= 0:
        return JobRates()
    parts = [
        max((_grown(before, tenant, uuid, key) for uuid in tenant["gpus"]), default=0.0)
        for key in ("lease_s", "wait_s")
    ]
    return JobRates(*(min(1.0, part / passed) for part in parts))


def _grown(before: Tenant | None, tenant: Tenant, uuid: str, key: str) -> float:
    """By how much a figure has grown. One that shrank began anew, since its job was requeued."""
    used = tenant["gpus"].get(uuid, {})
    was = before["gpus"].get(uuid, {}) if before else used
    return max(0.0, float(used.get(key, 0)) - float(was.get(key, 0)))

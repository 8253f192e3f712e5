"""The answer to status: devices, tenants and settings. One answer is one packet.

A packet of a UNIX socket is limited (net.core.wmem_default, 208 KiB as a rule);
256 tenants on 8 devices take half a megabyte. So tenants come in pages: "next"
in an answer is the job to ask for those after it with {"op": "status", "after": JOB}.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from _gpulease import lib

from leased import __version__
from leased.admin import details, parking, shard_memory
from leased.admin.settings import Settings
from leased.api import answers
from leased.gpus.devices import Gpu
from leased.leasing import sharing_mode
from leased.leasing.device_totals import ADDED
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.memory.speed import GIB
from leased.monitors.class_health import ClassHealth
from leased.monitors.copies_ahead import CopiesAhead
from leased.monitors.device_monitor import DeviceMonitor
from leased.mps.mps import Mps
from leased.slurm.clusters import Cluster
from leased.store.store import Store
from leased.usage.handoff_times import BOUNDS_NS
from leased.usage.usage import Usage, figures

FAULTY = "faulty"
KEEPERS_SHOWN = 8  # jobs that keep another one out
PAGE_BYTES = 65_536  # of tenants in one answer; half of wmem_default with the devices


@dataclass(frozen=True)
class Seen:
    """What others have seen that status shows. devices: what NVML says of them; ahead: host memory
    that is made before it is needed; health: how well each device is for offline jobs; mps: which
    devices are shared by MPS. None: nobody looks."""

    strays: Callable[[], answers.UnleasedProcesses] = answers.UnleasedProcesses
    usage_waiting: Callable[[], answers.UsageWaiting] = lambda: {"runs": 0, "first": []}
    devices: DeviceMonitor | None = None
    ahead: CopiesAhead | None = None
    health: ClassHealth | None = None
    mps: Mps | None = None


NOTHING_SEEN = Seen()


@dataclass
class Status:
    """The answers to status."""

    leases: Leases
    settings: Settings
    store: Store
    cluster: Cluster
    seen: Seen
    started: float = field(default_factory=time.monotonic)

    def first(self) -> answers.Status:
        """Everything but the tenants that do not fit on the first page."""
        limits = self.settings.limits()
        return {
            "version": __version__,
            "wire_version": int(lib.GL_VERSION),
            "uptime_s": round(time.monotonic() - self.started, 1),
            "store_fault": self.store.fault,
            "nvml_fault": self.seen.devices.health.nvml if self.seen.devices else None,
            "limits": {
                "quantum_min_s": limits.quantum_min_ns / 1e9,
                "quantum_max_s": limits.quantum_max_ns / 1e9,
                "user_lock_off": limits.lock_off,
                "user_oversub": limits.oversub,
            },
            "settings": self.settings.listed(),
            "strays": self.seen.strays(),
            "copies": self._copies(),
            "cluster": self.cluster.status(),
            "usage_waiting": self.seen.usage_waiting(),
            "devices": self._devices(),
            **self.page(0),
        }

    def _copies(self) -> answers.Copies | None:
        """The node's host memory for copies; None: the node has none."""
        memory, claims = self.leases.copies, self.leases.claims
        if memory is None or claims is None:
            return None
        return {
            **memory.status(),
            "ahead_bytes": self.seen.ahead.line.total if self.seen.ahead else 0,
            "ahead_most_bytes": self.seen.ahead.most() if self.seen.ahead else 0,
            "waiting": sorted(claims.waiting),
        }

    def page(self, after: int) -> answers.TenantPage:
        """Tenants of higher job ids than `after`, as many as one packet holds."""
        usage = self.leases.tenants.usage()
        page: list[answers.Tenant] = []
        size = 0
        for job_id in sorted(job for job in self.leases.tenants if job > after):
            entry = self._tenant(self.leases.tenants[job_id], usage[job_id])
            size += len(json.dumps(entry))
            if page and size > PAGE_BYTES:
                return {"tenants": page, "next": page[-1]["job_id"]}
            page.append(entry)
        return {"tenants": page}

    def _devices(self) -> list[answers.Device]:
        totals = self.leases.tenants.totals()
        return [
            self._device(gpu, totals.get(gpu.uuid, Usage())) for gpu in self.leases.gpus.slurms()
        ]

    def _device(self, gpu: Gpu, total: Usage) -> answers.Device:
        device, rules = self.leases.view.device(gpu.uuid), self.leases.view.rules
        holders = list(device.holders)
        now = self.leases.clock()
        ends = [lease.ends for lease in holders if lease.ends is not None]
        drain = "draining" if holders else "drained"
        fault = self.leases.gpus.fault_of(gpu.uuid)
        mode = sharing_mode.Mode(FAULTY, fault) if fault else sharing_mode.of(device)
        return {
            "index": gpu.index,
            "number": gpu.number,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "memory_bytes": gpu.memory,
            "usable_bytes": device.residency.room,
            "reserve_bytes": gpu.reserve,
            "mem_per_shard_bytes": shard_memory.of_one(self.settings.config(), gpu),
            "overhead_bytes": self.leases.gpus.overheads[gpu.uuid].taken,
            "tenant_bytes": device.tenant_bytes,
            "resident_bytes": device.residency.resident,
            "fits": device.residency.fits(),
            "holders": [lease.job_id for lease in holders],
            "waiting": device.queue,
            "quantum_left_s": round(max(0, min(ends) - now) / 1e9, 3) if ends else None,
            "lock": device.state.lock,
            "quantum_s": None if device.state.quantum_ns is None else device.state.quantum_ns / 1e9,
            "policy": rules.policies.of_device[gpu.uuid],
            "requested": rules.shares.requested(gpu.uuid),
            "online_slowdown": self.leases.slices.slowdown_of(gpu.uuid),
            "offline_health": self._health(gpu.uuid),
            "mps": self.seen.mps.status(gpu.uuid) if self.seen.mps else None,
            "chain": details.chain(self.leases, gpu.uuid),
            "mode": mode.word,
            "why": mode.why,
            "fault": fault,
            "busy_percent": self.seen.devices.busy.get(gpu.uuid) if self.seen.devices else None,
            "drain": drain if device.state.drained else None,
            "link_gib_s": round(device.residency.link.bytes_s / GIB, 2),
            "paging_gib_s": round(device.residency.paging.bytes_s / GIB, 2),
            "total": {figure.key: figure.value(total) for figure in ADDED},
            "handoff_times": {
                "bounds_s": [bound / 1e9 for bound in BOUNDS_NS],
                "counts": list(device.state.handoff_times.counts),
                "sum_s": device.state.handoff_times.sum_ns / 1e9,
            },
        }

    def _health(self, uuid: str) -> answers.Health | None:
        found = self.seen.health.states.get(uuid) if self.seen.health else None
        return {"state": found.state.value, "why": found.why or None} if found else None

    def _tenant(self, tenant: Tenant, usage: dict[str, Usage]) -> answers.Tenant:
        job = tenant.job_id
        state = self.leases.view.tenant(job)
        device = self.leases.view.device
        return {
            "job_id": tenant.job_id,
            "job": tenant.job,
            "uid": tenant.uid,
            "opened": self.store.opened(job),
            "lock": self.leases.view.rules.lock_of(state),
            "memory": tenant.memory_kind,
            "memory_why": tenant.memory_why or None,
            "quantum_s": tenant.given.quantum_ns / 1e9,
            "job_class": tenant.given.job_class,
            "space": tenant.given.space,
            "sm": tenant.given.sm,
            "share": details.share(self.leases, tenant),
            "copies_bytes": self.leases.copies.of_job(job) if self.leases.copies else 0,
            "ahead_bytes": self.seen.ahead.line.of_job(job) if self.seen.ahead else 0,
            "total_bytes": dict(tenant.totals),
            "clients": len(tenant.clients),
            "channels": details.channels(self.leases, tenant),
            "slices": details.slices(self.leases, tenant),
            "state": state.state,
            "stopped": state.frozen,
            "parked": parking.shown(self.leases, tenant),
            "epoch": state.epoch or None,
            "resident_bytes": {
                u: device(u).residency.evictable(tenant.job_id) for u in tenant.gang
            },
            "fixed": details.fixed(tenant),
            "clean": details.clean(
                tenant, self.leases.tenants.cleans, sum(used.clean_bytes for used in usage.values())
            ),
            "kept_out": self._kept_out(tenant) if state.waiting else {},
            "gpus": {uuid: figures(used) for uuid, used in usage.items()},
            "on_nodes": self._on_nodes(tenant) if tenant.nodes else None,
        }

    def _on_nodes(self, tenant: Tenant) -> answers.OnNodes:
        known = self.leases.tenants.elsewhere(tenant)
        nodes = {node: known.nodes.get(node) for node in tenant.nodes}
        return {"nodes": nodes, "why": known.why or None}

    def _kept_out(self, tenant: Tenant) -> dict[str, answers.KeptOut]:
        """By device, the jobs whose fixed memory leaves too little room for a waiter."""
        found: dict[str, answers.KeptOut] = {}
        for uuid in tenant.gang:
            device = self.leases.view.device(uuid)
            by = device.residency.keep_out(tenant.job_id)
            if by:
                largest = dict(itertools.islice(by.items(), KEEPERS_SHOWN))
                needs = device.residency.of(tenant.job_id).bytes
                found[uuid] = {"needs_bytes": needs, "jobs": len(by), "by": largest}
        return found

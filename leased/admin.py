"""What root may ask on admin.sock: register a step, end a job, look and set."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leased import __version__, arbiter, options
from leased.accounting import summary
from leased.config import Config
from leased.devices import Gpu, visible
from leased.errors import Refused
from leased.identity import Peer, ProcessId, alive, job_of, process_id
from leased.leases import Leases, Tenant
from leased.store import Store, TenantRecord

TENANTS = 256
LOCKS = ("on", "off", "auto")


def get_int(request: dict[str, Any], name: str, low: int, high: int) -> int:
    """An integer field within bounds. Refused names the field."""
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Refused(f"{name} is {value!r}; it must be an integer from {low} to {high}")
    return value


def get_text(request: dict[str, Any], name: str, longest: int = 256) -> str:
    """A text field. Refused names the field."""
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > longest:
        raise Refused(f"{name} must be a text of at most {longest} characters")
    return value


def seconds(ns: int) -> str:
    return f"{ns / 1e9:g}s"


@dataclass
class Admin:
    """The requests. job_ended: called with a job that is over, to write its usage."""

    config: Config
    gpus: list[Gpu]
    leases: Leases
    store: Store
    reload: Callable[[], None]
    job_ended: Callable[[int], None]
    admin_gid: int = -1
    started: float = field(default_factory=time.monotonic)
    # slurmstepd processes by pid, as they registered, with their job
    stepds: dict[int, tuple[ProcessId, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.stepds = self.store.stepds()
        self._forget_dead_stepds()

    def handle(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Serve one request. Refused: what is wrong with it."""
        operations: dict[str, Callable[[dict[str, Any], Peer], dict[str, Any]]] = {
            "register": self.register,
            "job_end": self.job_end,
            "status": self.status,
            "set": self.set,
            "reload": self.do_reload,
            "usage": self.usage,
        }
        name = request.get("op")
        operation = operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise Refused(f"unknown op {name!r}", f"known are {', '.join(operations)}")
        if peer.uid != 0 and name in ("register", "job_end", "reload"):
            raise Refused(f"{name} is for root only")
        return operation(request, peer)

    def find(self, peer: Peer) -> Tenant | None:
        """The tenant of a process, by what the kernel says of it."""
        job = job_of(peer.pid, self.stepds)
        return self.leases.tenants.get(job) if job is not None else None

    # -- registration -----------------------------------------------------------

    def register(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """A slurmstepd announces a step of a job. The first one decides the job's gang."""
        job_id = get_int(request, "job_id", 1, 2**32 - 1)
        tenant = self.leases.tenants.get(job_id)
        if tenant is None:
            tenant = self._new_tenant(job_id, request)
        stepd = process_id(peer.pid)
        if stepd is not None:
            self._forget_dead_stepds()
            self.stepds[peer.pid] = (stepd, job_id)
            self.store.add_stepd(stepd, job_id)
        socket = self.config.runtime_dir / "tenant.sock"
        return {
            "tenant": job_id,
            "preload": self.config.preload,
            "env": {"GPU_LEASE_SOCKET": str(socket)},
        }

    def _forget_dead_stepds(self) -> None:
        for pid, (process, _) in list(self.stepds.items()):
            if not alive(process):
                del self.stepds[pid]

    def _new_tenant(self, job_id: int, request: dict[str, Any]) -> Tenant:
        if len(self.leases.tenants) >= TENANTS:
            raise Refused(f"this node has {TENANTS} sharing jobs already", "try again later")
        if not Path(self.config.preload).is_file():
            raise Refused(
                f"no interposer at {self.config.preload}", "set daemon.preload in the config"
            )
        gang = self._gang(request)
        text = get_text(request, "options")
        wanted = options.parse(text).over(self.config.defaults)
        self._check_limits(wanted)
        tenant = self._tenant(job_id, get_int(request, "uid", 0, 2**32 - 1), text, gang)
        self.store.open_tenant(TenantRecord(job_id, tenant.uid, tenant.gang, text, tenant.lock, {}))
        self.leases.open(tenant)
        return tenant

    def _tenant(self, job_id: int, uid: int, text: str, gang: list[Gpu]) -> Tenant:
        wanted = options.parse(text).over(self.config.defaults)
        assert wanted.quantum_ns is not None
        assert wanted.lock is not None
        return Tenant(
            job_id,
            uid,
            text,
            wanted.lock,
            wanted.quantum_ns,
            bool(wanted.oversub),
            {gpu.uuid: self._visible(gpu, wanted) for gpu in gang},
        )

    def restore(self, record: TenantRecord) -> None:
        """A tenant of the daemon before this one, with its usage so far."""
        by_uuid = {gpu.uuid: gpu for gpu in self.gpus}
        gang = [by_uuid[uuid] for uuid in record.gang if uuid in by_uuid]
        if gang:
            self.leases.open(
                self._tenant(record.job_id, record.uid, record.options, gang), record.usage
            )

    def _visible(self, gpu: Gpu, wanted: options.Options) -> int:
        """Bytes the job sees as the device's total: its cap, never more than what is there."""
        beside = len(self.leases.tenants_of(gpu.uuid))
        total = visible(gpu, self.leases.overheads[gpu.uuid], beside + 1)
        if wanted.mem_bytes is not None:
            return min(total, wanted.mem_bytes)
        return int(total * (wanted.mem_fraction or 1.0))

    def _gang(self, request: dict[str, Any]) -> list[Gpu]:
        if get_int(request, "nodes", 1, 2**20) > 1:
            raise Refused(
                "a job on several nodes cannot share GPUs yet",
                "ask for one node (-N1), or for whole GPUs (--gres=gpu:1)",
            )
        if get_int(request, "shards", 0, 2**20) == 0:
            raise Refused("--gpu-share without a shard", "add --gres=shard:1")
        wanted = request.get("gpus")
        if not isinstance(wanted, list) or not wanted:
            raise Refused("the job has shards but no GPU", "see gres.conf: shards need GPUs")
        by_index = {gpu.index: gpu for gpu in self.gpus}
        unknown = [index for index in wanted if index not in by_index]
        if unknown:
            raise Refused(
                f"GPU {unknown[0]} of Slurm is not one of the {len(self.gpus)} that NVML shows",
                "compare gres.conf with nvidia-smi",
            )
        return [by_index[index] for index in sorted(set(wanted))]

    def _check_limits(self, wanted: options.Options) -> None:
        low, high = self.config.quantum_min_ns, self.config.quantum_max_ns
        assert wanted.quantum_ns is not None
        if not low <= wanted.quantum_ns <= high:
            raise Refused(
                f"tq:{seconds(wanted.quantum_ns)} is outside this site's limits",
                f"choose tq between {seconds(low)} and {seconds(high)}",
            )
        if wanted.lock == "off" and not self.config.lock_off:
            raise Refused("lock:off is not allowed on this site", "use lock:auto or lock:on")
        if wanted.oversub and not self.config.oversub:
            raise Refused("oversub:on is not allowed on this site", "leave it out")
        if wanted.memory == "swap":
            raise Refused("memory:swap is not in this version", "use memory:managed")

    def job_end(self, request: dict[str, Any], _: Peer) -> dict[str, Any]:
        """The job is over on this node. A job that never shared is no error."""
        job_id = get_int(request, "job_id", 1, 2**32 - 1)
        if job_id in self.leases.tenants:
            self.job_ended(job_id)
        return {}

    # -- looking and setting ------------------------------------------------------

    def status(self, _: dict[str, Any], __: Peer) -> dict[str, Any]:
        usage = self.leases.usage()
        return {
            "version": __version__,
            "uptime_s": round(time.monotonic() - self.started, 1),
            "devices": [self._device_status(gpu) for gpu in self.gpus],
            "tenants": [
                self._tenant_status(tenant, usage[tenant.job_id])
                for tenant in self.leases.tenants.values()
            ],
        }

    def _device_status(self, gpu: Gpu) -> dict[str, Any]:
        state = self.leases.arbiter
        device = state.devices[gpu.uuid]
        holders = state.holders(gpu.uuid)
        now = self.leases.clock()
        ends = [t.lease.revoke_at for t in holders if t.lease and t.lease.revoke_at is not None]
        return {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "memory_bytes": gpu.memory,
            "usable_bytes": device.residency.room,
            "overhead_bytes": self.leases.overheads[gpu.uuid].taken,
            "tenant_bytes": device.residency.total() + sum(device.residency.fixed.values()),
            "fits": device.residency.fits(),
            "holders": [t.id for t in holders],
            "waiting": [job for job in state.queue if gpu.uuid in state.tenants[job].gang],
            "quantum_left_s": round(max(0, min(ends) - now) / 1e9, 3) if ends else None,
            "lock": device.lock,
            "link_gib_s": round(device.residency.link_bytes_s / 2**30, 2),
        }

    def _tenant_status(self, tenant: Tenant, usage: dict[str, arbiter.Usage]) -> dict[str, Any]:
        state = self.leases.arbiter.tenants[tenant.job_id]
        resident = {}
        for uuid in tenant.gang:
            share = self.leases.arbiter.devices[uuid].residency.shares.get(tenant.job_id)
            resident[uuid] = share.resident if share else 0
        return {
            "job_id": tenant.job_id,
            "uid": tenant.uid,
            "lock": self.leases.arbiter.lock_of(state),
            "quantum_s": tenant.quantum_ns / 1e9,
            "clients": len(tenant.clients),
            "state": "holds" if state.lease else "waits" if state.waiting else "idle",
            "epoch": state.lease.epoch if state.lease else None,
            "resident_bytes": resident,
            "gpus": {uuid: summary(used) for uuid, used in usage.items()},
        }

    def usage(self, request: dict[str, Any], _: Peer) -> dict[str, Any]:
        """A job's usage, also after its end."""
        job_id = get_int(request, "job_id", 1, 2**32 - 1)
        current = self.leases.usage().get(job_id)
        if current is None:
            record = self.store.find(job_id)
            if record is None:
                raise Refused(f"job {job_id} never shared a GPU of this node", "see sacct")
            current = dict(record.usage)
        return {"usage": {uuid: summary(used) for uuid, used in current.items()}}

    def set(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Force a lock mode or a quantum on one device or all; "user" gives it back to the jobs."""
        if peer.uid != 0 and peer.gid != self.admin_gid:
            raise Refused("set is for root and the admin group", "see admin_group in the config")
        chosen = self._chosen(get_text(request, "device") or "all")
        events: list[arbiter.Event] = []
        if "lock" in request:
            lock = get_text(request, "lock")
            if lock not in (*LOCKS, "user"):
                raise Refused(f"lock {lock!r} is not known", "use on, off, auto or user")
            value = None if lock == "user" else lock
            events += [arbiter.LockSet(gpu.uuid, value) for gpu in chosen]
        if "quantum" in request:
            text = get_text(request, "quantum")
            quantum = None if text == "user" else options.parse_time(text)
            events += [arbiter.QuantumSet(gpu.uuid, quantum) for gpu in chosen]
        if not events:
            raise Refused("nothing to set", "give lock=... or quantum=...")
        self.leases.run(*events)
        return {"devices": [gpu.index for gpu in chosen]}

    def _chosen(self, name: str) -> list[Gpu]:
        if name == "all":
            return self.gpus
        found = [g for g in self.gpus if name in (str(g.index), g.uuid)]
        if not found:
            known = ", ".join(f"{g.index} ({g.uuid})" for g in self.gpus)
            raise Refused(f"no device {re.sub('[^ -~]', '?', name)}", f"there are {known}")
        return found

    def do_reload(self, _: dict[str, Any], __: Peer) -> dict[str, Any]:
        self.reload()
        return {}

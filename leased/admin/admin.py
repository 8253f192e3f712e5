"""What may be asked on admin.sock: register and join a step, end a job, look, set and drain.

Every operation has its fields here; who may ask is in the same table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from leased.admin import host_memory, option_notes
from leased.admin.gpu_numbers import Renumber
from leased.admin.settings import Settings
from leased.admin.status import Status
from leased.base.errors import Refused
from leased.base.requests import (
    OF_DEVICE,
    OF_NODE,
    Request,
    check_fields,
    get_int,
    get_ints,
    get_text,
    shown,
)
from leased.config import options
from leased.config.config import Config
from leased.core.usage import Usage
from leased.gpus.devices import Gpu, visible
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer
from leased.processes.stepds import Stepds
from leased.slurm.accounting import summary
from leased.slurm.clusters import Cluster
from leased.store.store import Store, TenantRecord
from leased.store.tables import LAST_JOB, LAST_UID

log = logging.getLogger("gpu-leased")

TENANTS = 256
GPUS = 4096  # no index above is one
NO_LONGER_READ = ("step_id", "gid")  # of a step: plugins of 0.1.0 say them
ROOT, ADMINS, ANYONE = "root", "root and the admin group", "whoever may open the socket"

Operation = Callable[[Request, Peer], dict[str, Any]]


def _memory_mib(request: Request) -> int:
    """What the step has of the host's memory; 0: no limit."""
    return get_int({"memory_mib": 0} | request, "memory_mib", 0, 1 << 44)


@dataclass
class Admin:
    """The requests. job_ended: called with a job that is over, to write its usage."""

    config: Config
    leases: Leases
    store: Store
    reload: Callable[[], str | None]  # what is wrong with the configuration, if anything
    job_ended: Callable[[int], None]
    admin_gid: int = -1
    renumber: Callable[[], None] = field(init=False)  # Refused: Slurm's indices cannot be told
    settings: Settings = field(init=False)
    shows: Status = field(init=False)
    stepds: Stepds = field(init=False)
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        self.settings = Settings(self.leases, self.store, lambda: self.config)
        self.renumber = Renumber(self.leases, self.settings, lambda: self.config)
        self.shows = Status(self.leases, self.settings, self.store)
        self.stepds = Stepds(self.store)
        step = (
            *("job_id", "uid", "nodes", "shards", "memory_mib", "gpus", "options", "cluster"),
            *NO_LONGER_READ,
        )
        # By name: who may ask, the fields, who answers.
        self.operations: dict[str, tuple[str, tuple[str, ...], Operation]] = {
            "register": (ROOT, step, self.register),
            "join": (ROOT, ("job_id", "uid", "cluster", "memory_mib"), self.join),
            "job_end": (ROOT, ("job_id",), self.job_end),
            "reload": (ROOT, (), self.do_reload),
            "status": (ANYONE, ("after",), self.status),
            "usage": (ANYONE, ("job_id",), self.usage),
            "set": (ADMINS, ("device", *OF_DEVICE, *OF_NODE), self.set),
            "drain": (ADMINS, ("device",), self.drain),
            "resume": (ADMINS, ("device",), self.resume),
        }

    def handle(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Serve one request. Refused: what is wrong with it."""
        name = request.get("op")
        if not isinstance(name, str) or name not in self.operations:
            raise Refused(f"unknown op {shown(name)}", f"known are {', '.join(self.operations)}")
        who, fields, operation = self.operations[name]
        if not self._may(peer, who):
            hint = "see admin_group in the configuration" if who == ADMINS else "run as root"
            raise Refused(f"{name} is for {who}", hint)
        check_fields(request, fields)
        return operation(request, peer)

    def _may(self, peer: Peer, who: str) -> bool:
        if peer.uid == 0 or who == ANYONE:
            return True
        return who == ADMINS and self.admin_gid in (peer.gid, *peer.groups)

    def find(self, peer: Peer) -> Tenant | None:
        """The tenant of a process, by what the kernel says of it."""
        job = self.stepds.job_of(peer.pid)
        return self.leases.tenants.get(job) if job is not None else None

    def lives_here(self, job_id: int) -> bool:
        """Whether a slurmstepd of the job, or a process that uses its GPUs, is known to live."""
        tenant = self.leases.tenants.get(job_id)
        return bool(tenant and tenant.clients) or self.stepds.lives(job_id)

    # -- registration -----------------------------------------------------------

    def register(self, request: Request, peer: Peer) -> dict[str, Any]:
        """A slurmstepd announces a step of a job. The gang is all GPUs that its steps have."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        _memory_mib(request)  # sound, also where nothing depends on it
        self.cluster.admit(job_id, get_text(request, "cluster"))
        tenant = self.leases.tenants.get(job_id)
        if tenant is not None and not self.stepds.lives(job_id):
            log.info("job %d runs again; nobody told the end of its run before", job_id)
            self.job_ended(job_id)
            tenant = None
        if tenant is not None:
            self._widen(tenant, request)
            return self._admitted(tenant, peer)
        tenant = self._new_tenant(job_id, request)
        gang = [self.leases.gpus[uuid] for uuid in tenant.gang]
        note = option_notes.of_options(options.parse(get_text(request, "options")), gang)
        return self._admitted(tenant, peer) | ({"note": note} if note else {})

    def join(self, request: Request, peer: Peer) -> dict[str, Any]:
        """A slurmstepd announces a further step of a job that shares: on the GPUs that it has."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        tenant = self.leases.tenants.get(job_id)
        _memory_mib(request)
        self.cluster.admit(job_id, get_text(request, "cluster"))
        if tenant is None:
            raise Refused(f"job {job_id} is not registered", "register it with its GPUs")
        self._check_user(tenant, request)
        if tenant.swaps:
            self._check_swap(tenant, {}, request)
        return self._admitted(tenant, peer)

    def _admitted(self, tenant: Tenant, peer: Peer) -> dict[str, Any]:
        """Remember the slurmstepd; what the tasks of its step need."""
        self.stepds.register(peer.pid, tenant.job_id)
        socket = self.config.runtime_dir / "tenant.sock"
        return {
            "tenant": tenant.job_id,
            "preload": self.config.preload,
            "env": {"GPU_LEASE_SOCKET": str(socket)},
        }

    def _widen(self, tenant: Tenant, request: Request) -> None:
        """A step on GPUs that no step before had. One without any changes nothing."""
        self._check_user(tenant, request)
        if not request.get("gpus"):
            return
        wanted, _ = options.understood(tenant.options)
        others = [gpu for gpu in self._gang(request) if gpu.uuid not in tenant.gang]
        self._refuse_faulty(others)
        more = {gpu.uuid: self._visible(gpu, wanted) for gpu in others}
        if tenant.swaps:
            self._check_swap(tenant, more, request)
        if more:
            self.leases.tenants.widen(tenant, more)
            self.store.widen(tenant.job_id, tenant.totals)

    @staticmethod
    def _check_user(tenant: Tenant, request: Request) -> None:
        """Refused: the step is of another user's job, which has the same number."""
        uid = get_int({"uid": tenant.uid} | request, "uid", 0, LAST_UID)
        if uid != tenant.uid:
            raise Refused(
                f"job {tenant.job_id} is user {tenant.uid}'s on this node, and user {uid}'s here",
                "let the jobs of one Slurm cluster share GPUs of a node",
            )

    def _check_swap(self, tenant: Tenant, more: dict[str, int], request: Request) -> None:
        """Refused: no host memory for what a later step may have to move."""
        need = host_memory.needed(tenant) + sum(more.values())
        host_memory.check_step(need, _memory_mib(request))
        if more:
            others = [other for other in self.leases.tenants.values() if other is not tenant]
            host_memory.check_budget(self.config, need, others)

    def _new_tenant(self, job_id: int, request: Request) -> Tenant:
        if len(self.leases.tenants) >= TENANTS:
            raise Refused(f"this node has {TENANTS} sharing jobs already", "try again later")
        if not Path(self.config.preload).is_file():
            raise Refused(
                f"no interposer at {self.config.preload}", "set daemon.preload in the config"
            )
        gang = self._gang(request)
        self._refuse_faulty(gang)
        wanted = self._resolved(options.parse(get_text(request, "options")))
        self.settings.limits().check(wanted)
        asked = wanted.memory
        if asked == "auto":
            wanted = replace(wanted, memory="swap")
        tenant = self._tenant(job_id, get_int(request, "uid", 0, LAST_UID), wanted, gang)
        if tenant.swaps and not self._may_swap(tenant, wanted, request, asked == "auto"):
            tenant = self._tenant(job_id, tenant.uid, replace(wanted, memory="managed"), gang)
        record = TenantRecord(
            *(job_id, tenant.uid, tenant.gang, tenant.options, tenant.lock, {}), tenant.totals
        )
        self.store.open_tenant(record)
        self.leases.tenants.open(tenant)
        return tenant

    def _resolved(self, said: options.Options) -> options.Options:
        """With all that the job left out, so that it stays what the job was given."""
        return said.over(self.config.defaults).over(options.PLAIN)

    def _may_swap(
        self, tenant: Tenant, wanted: options.Options, request: Request, else_managed: bool
    ) -> bool:
        """Whether its memory can be swapped. Refused: it cannot, and the job wants no other."""
        others = self.leases.tenants.values()
        try:
            host_memory.check(self.config, wanted, tenant, others, _memory_mib(request))
        except Refused as why:
            if not else_managed:
                raise
            log.info("job %d has managed memory: %s", tenant.job_id, why)
            return False
        return True

    def _tenant(
        self,
        job_id: int,
        uid: int,
        wanted: options.Options,
        gang: list[Gpu],
        totals: Mapping[str, int] = MappingProxyType({}),
    ) -> Tenant:
        """wanted: resolved. totals: what it sees of a device, where that was said before."""
        assert wanted.quantum_ns is not None
        assert wanted.lock is not None
        seen = {gpu.uuid: totals.get(gpu.uuid) or self._visible(gpu, wanted) for gpu in gang}
        quantum, oversub, swaps = wanted.quantum_ns, bool(wanted.oversub), wanted.memory == "swap"
        return Tenant(job_id, uid, wanted.text(), wanted.lock, quantum, oversub, seen, swaps)

    def restore(self, record: TenantRecord) -> None:
        """A tenant of the daemon before this one, with its usage so far.

        A record that another release wrote may say what this one does not know: the job goes on
        with the rest. One that cannot be used at all ends here: its processes are refused.
        """
        try:
            self._restore(record)
        except Exception:
            log.exception(
                "job %d cannot be taken over from the daemon before: its processes are refused, "
                "and its usage up to now goes to Slurm's accounting",
                record.job_id,
            )
            self._give_up(record)

    def _restore(self, record: TenantRecord) -> None:
        gpus = self.leases.gpus
        gang = [gpus[uuid] for uuid in record.gang if gpus.has(uuid)]
        if not gang:  # none of its GPUs works any more
            self._give_up(record)
            return
        said, unknown = options.understood(record.options)
        tenant = self._tenant(
            *(record.job_id, record.uid, self._resolved(said), gang), record.totals
        )
        if unknown:
            log.error(
                "job %d was given %s, which this release does not know: it goes on without",
                *(record.job_id, shown(",".join(unknown))),
            )
        else:
            totals = dict(record.totals) | dict(tenant.totals)
            self.store.resolve(record.job_id, tenant.options, totals)
        self.leases.tenants.open(tenant, record.usage)

    def _give_up(self, record: TenantRecord) -> None:
        """What it had is all that it will have had."""
        had = {uuid: record.usage.get(uuid, Usage()) for uuid in record.gang}
        self.store.close_tenant(record.job_id, had)

    def _visible(self, gpu: Gpu, wanted: options.Options) -> int:
        """Bytes the job sees as the device's total: its cap, never more than what is there, and
        never 0."""
        beside = len(self.leases.tenants.sharing(gpu.uuid))
        total = visible(gpu, self.leases.gpus.overheads[gpu.uuid], beside + 1)
        if wanted.mem_bytes is not None:
            return min(total, wanted.mem_bytes)
        return max(1, int(total * (wanted.mem_fraction or 1.0)))

    def _gang(self, request: Request) -> list[Gpu]:
        if get_int(request, "nodes", 1, 2**20) > 1:
            raise Refused(
                "a job on several nodes cannot share GPUs yet",
                "ask for one node (-N1), or for whole GPUs (--gres=gpu:1)",
            )
        if get_int(request, "shards", 0, 2**20) == 0:
            raise Refused("--gpu-share without a shard", "add --gres=shard:1")
        wanted = get_ints(request, "gpus", GPUS, GPUS)
        if not wanted:
            raise Refused("the job has shards but no GPU", "see gres.conf: shards need GPUs")
        self.renumber()
        by_index = {gpu.index: gpu for gpu in self.leases.gpus.slurms()}
        unknown = [index for index in wanted if index not in by_index]
        if unknown:
            raise Refused(
                f"GPU {unknown[0]} of Slurm is not one of the {len(by_index)} that NVML shows",
                "compare gres.conf with nvidia-smi",
            )
        return [by_index[index] for index in sorted(set(wanted))]

    def _refuse_faulty(self, gpus: list[Gpu]) -> None:
        """Refused: a new job would fail on one of them, or not share it."""
        for gpu in gpus:
            fault = self.leases.gpus.faults.get(gpu.uuid)
            if fault is not None:
                raise Refused(
                    f"GPU {gpu.index} takes no new jobs: {fault}",
                    "tell the administrator, and submit the job again for another node",
                )

    def job_end(self, request: Request, _: Peer) -> dict[str, Any]:
        """The job is over on this node. A job that never shared is no error."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        if job_id in self.leases.tenants:
            self.job_ended(job_id)
        return {}

    # -- looking and setting ------------------------------------------------------

    def status(self, request: Request, _: Peer) -> dict[str, Any]:
        """Everything, or (after: a job id) the tenants that had no room in the answer before."""
        if "after" in request:
            return self.shows.page(get_int(request, "after", 0, LAST_JOB))
        return self.shows.first()

    def usage(self, request: Request, _: Peer) -> dict[str, Any]:
        """A job's usage, also after its end."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        current = self.leases.tenants.usage().get(job_id)
        if current is None:
            record = self.store.find(job_id)
            if record is None:
                raise Refused(f"job {job_id} never shared a GPU of this node", "see sacct")
            current = dict(record.usage)
        return {"usage": {uuid: summary(used) for uuid, used in current.items()}}

    def set(self, request: Request, _: Peer) -> dict[str, Any]:
        """Force something on one device or all, or change what users may choose."""
        wanted = {key: get_text(request, key) for key in request if key in OF_DEVICE | OF_NODE}
        if not wanted:
            raise Refused("nothing to set", f"give one of {', '.join(OF_DEVICE | OF_NODE)}")
        return self._change(request, wanted)

    def drain(self, request: Request, _: Peer) -> dict[str, Any]:
        """No new lease on a device; whoever holds it may go on to the end of its quantum."""
        return self._change(request, {"drain": "yes"})

    def resume(self, request: Request, _: Peer) -> dict[str, Any]:
        """Undo a drain."""
        return self._change(request, {"drain": "user"})

    def _change(self, request: Request, wanted: dict[str, str]) -> dict[str, Any]:
        chosen = self._chosen(get_text(request, "device") or "all")
        self.settings.change(chosen, wanted)
        told = self.leases.gpus.slurms() if chosen is None else chosen
        return {"devices": [gpu.index for gpu in told], "store_fault": self.store.fault}

    def _chosen(self, name: str) -> list[Gpu] | None:
        """The devices of a name; None: all."""
        if name == "all":
            return None
        found = [g for g in self.leases.gpus.slurms() if name in (str(g.index), g.uuid)]
        if not found:
            known = ", ".join(f"{g.index} ({g.uuid})" for g in self.leases.gpus.slurms())
            raise Refused(f"no device {name}", f"there are {known}, and all")
        return found

    def do_reload(self, _: Request, __: Peer) -> dict[str, Any]:
        return {"fault": self.reload()}

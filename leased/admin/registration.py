"""Registers the steps of jobs: the first step of a job opens its tenant, the others join it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from leased.admin import (
    host_memory,
    job_class,
    kernel_cap,
    label_check,
    option_notes,
    several_nodes,
    shard_memory,
    share_left,
)
from leased.admin.gang import Gangs
from leased.admin.user_limits import UserLimits
from leased.api.step_fields import Admitted
from leased.base.errors import Refused
from leased.base.requests import Request, get_int, get_job, get_text
from leased.chains import membership
from leased.config import options
from leased.config.config import Config
from leased.config.job_sets import Owner
from leased.config.options import Options, Resolved
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.mps.mps import Mps
from leased.processes.identity import Peer
from leased.processes.stepds import Stepds
from leased.slurm.clusters import Cluster
from leased.store.records import LAST_JOB, LAST_UID, TenantRecord
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

TENANTS = 256


def _memory_mib(request: Request) -> int:
    """The MiB of host memory that the step may have; 0: no limit."""
    return get_int({"memory_mib": 0} | request, "memory_mib", 0, 1 << 44)


def _check_user(tenant: Tenant, request: Request) -> None:
    """Refused: the step is of another user's job, which has the same number."""
    uid = get_int({"uid": tenant.uid} | request, "uid", 0, LAST_UID)
    if uid != tenant.uid:
        raise Refused(
            f"job {tenant.job} of user {uid} has the number of a job of user {tenant.uid}, "
            "which shares GPUs of this node already",
            "let the jobs of one Slurm cluster share GPUs of a node",
        )


@dataclass
class Registration:
    """config, limits: those in force. job_ended: called with a job that is over. refuses_offline:
    why no new offline job may begin on a device; None: one may."""

    leases: Leases
    store: Store
    stepds: Stepds
    cluster: Cluster
    gangs: Gangs
    config: Callable[[], Config]
    limits: Callable[[], UserLimits]
    job_ended: Callable[[int], None]
    mps: Mps
    refuses_offline: Callable[[str], str | None] = lambda _: None

    def register(self, request: Request, peer: Peer) -> Admitted:
        """A slurmstepd announces a step of a job. The gang is all GPUs that its steps have."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        _memory_mib(request)  # checked even where it has no effect
        self.cluster.admit(job_id, get_text(request, "cluster"))
        tenant = self.leases.tenants.get(job_id)
        if tenant is not None and not self.stepds.lives(job_id):
            log.info(
                "job %s has started again; the end of its previous run was not reported", tenant.job
            )
            self.job_ended(job_id)
            tenant = None
        if tenant is not None:
            self._environment(tenant, request)  # refused before anything changes
            self._widen(tenant, request)
            return self._admitted(tenant, request, peer)
        return self._begin(job_id, request, peer)

    def join(self, request: Request, peer: Peer) -> Admitted:
        """A slurmstepd announces a further step of a job that shares: on the GPUs that it has."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        tenant = self.leases.tenants.get(job_id)
        _memory_mib(request)
        self.cluster.admit(job_id, get_text(request, "cluster"))
        if tenant is None:
            raise Refused(f"job {job_id} is not registered", "register it with its GPUs")
        _check_user(tenant, request)
        if tenant.swaps:
            self._check_swap(tenant, {}, request)
        return self._admitted(tenant, request, peer)

    def _admitted(self, tenant: Tenant, request: Request, peer: Peer) -> Admitted:
        """Remember the slurmstepd, and return what the tasks of its step need."""
        env = self._environment(tenant, request)
        self.stepds.register(peer.pid, tenant.job_id)
        admitted = Admitted(tenant=tenant.job_id, preload=self.config().preload, env=env)
        if self.config().dmem and (caps := kernel_cap.of_tenant(self.leases, tenant)):
            admitted["dmem"] = caps
        return admitted

    def _environment(self, tenant: Tenant, request: Request) -> dict[str, str]:
        """What the tasks of a step get. Refused: its options are wrong, or not for these GPUs."""
        said = get_text(request, "options", options.LONGEST_TEXT)
        of_mps = self.mps.environment(tenant, said)
        return {"GPU_LEASE_SOCKET": str(self.config().tenant_socket)} | of_mps

    # -- a further step -----------------------------------------------------------

    def _widen(self, tenant: Tenant, request: Request) -> None:
        """Add the GPUs of a further step to the gang, if no step before had them."""
        _check_user(tenant, request)
        if not request.get("gpus"):
            return
        others = [gpu for gpu in self.gangs.of(request) if gpu.uuid not in tenant.gang]
        self.gangs.refuse_wide([*tenant.gang, *others])
        self.gangs.refuse_faulty(others)
        self._check_health(tenant, others, request)
        self.mps.check_more(tenant, others)
        beside = [other for other in self.leases.tenants.values() if other is not tenant]
        label_check.check(tenant.given, others, beside)
        fences = shard_memory.fences(self.config(), request, others)
        more = self.gangs.totals(others, tenant.given, fences=fences)
        several_nodes.check_more(tenant.nodes, more)
        further = Tenant(tenant.job_id, tenant.uid, tenant.given, more)
        self._check_chain(further, tenant)
        if tenant.swaps:
            self._check_swap(tenant, more, request)
        if more:
            share_left.check_more(self.leases, further)
            self.leases.tenants.widen(tenant, more)
            self.store.place(tenant.job_id, tenant.totals)

    def _check_swap(self, tenant: Tenant, more: dict[str, int], request: Request) -> None:
        """Refused: there is too little host memory for what the wider gang may have to evict."""
        if self.leases.tenants.offers_host():
            return  # it is taken when device memory is
        need = host_memory.needed(tenant) + sum(more.values())
        host_memory.check_step(need, _memory_mib(request))
        if more:
            others = [other for other in self.leases.tenants.values() if other is not tenant]
            host_memory.check_budget(self.config(), need, others)

    # -- the first step -------------------------------------------------------------

    def _begin(self, job_id: int, request: Request, peer: Peer) -> Admitted:
        """Open the job's tenant. Its options are resolved here, once, and stored resolved."""
        config = self.config()
        if len(self.leases.tenants) >= TENANTS:
            raise Refused(f"this node has {TENANTS} sharing jobs already", "try again later")
        if not Path(config.preload).is_file():
            raise Refused(
                f"there is no interposer at {config.preload}",
                "install gpu-lease on this node, or set daemon.preload in gpu-leased.toml",
            )
        nodes = several_nodes.of(request, self.leases.tenants.refuses_nodes)
        gang = self.gangs.of(request)
        self.gangs.refuse_wide(gang)
        self.gangs.refuse_faulty(gang)
        said = options.parse(get_text(request, "options", options.LONGEST_TEXT))
        tenant = self._tenant(job_id, request, said, gang)
        if nodes:
            tenant.nodes = nodes
            several_nodes.check(tenant.given)
        label_check.check(tenant.given, gang, self.leases.tenants.values())
        self._check_chain(tenant)
        self._check_health(tenant, gang, request)
        refusal = self.leases.tenants.refusal(tenant)
        if refusal is not None:
            raise Refused(refusal)
        waits = share_left.check(self.leases, config, tenant)
        self.store.open_tenant(
            TenantRecord(
                *(job_id, tenant.uid, tenant.gang, tenant.given.text(), tenant.given.lock, {}),
                tenant.totals,
                name=tenant.job,
                start=get_int({"start": 0} | request, "start", 0, 1 << 62),
                nodes=nodes,
            )
        )
        self.leases.tenants.open(tenant)
        admitted = self._admitted(tenant, request, peer)
        note = "; ".join(filter(None, (waits, option_notes.of_options(said, gang))))
        if note:
            admitted["note"] = note
        return admitted

    def _check_chain(self, asked: Tenant, itself: Tenant | None = None) -> None:
        """Refused: the chain has too many jobs. itself: the tenant, if it is open already."""
        others = (other for other in self.leases.tenants.values() if other is not itself)
        if membership.is_full(asked, others):
            raise Refused(
                f"chain:{asked.chain} has {membership.JOBS_MOST} jobs on this GPU already",
                "submit the job again when one of them has ended, or name another chain",
            )

    def _check_health(self, tenant: Tenant, gang: list[Gpu], request: Request) -> None:
        """Refused: one of the GPUs is not well enough for an offline job. One that was evicted, and
        so has begun anew, is not refused as well."""
        if get_int({"restarts": 0} | request, "restarts", 0, 1 << 32):
            return
        for gpu in gang if tenant.given.job_class == options.OFFLINE else []:
            why = self.refuses_offline(gpu.uuid)
            if why is not None:
                raise Refused(
                    f"GPU {gpu.index} takes no new offline jobs: it is {why}",
                    "submit the job again later, or for another node",
                )

    def _tenant(self, job_id: int, request: Request, said: Options, gang: list[Gpu]) -> Tenant:
        """The new tenant. memory:auto becomes swap where its memory can be swapped."""
        chosen = said.memory is not None or self.config().memory_chosen
        limits = self.limits()
        given = limits.with_quantum(Resolved.of(said, self.config().defaults), said)
        limits.check(given)
        uid = get_int(request, "uid", 0, LAST_UID)
        owner = Owner(uid, *(get_text(request, name) for name in ("partition", "qos", "account")))
        given = job_class.resolve(given, said, owner, self.config().classes)
        given = self.mps.admit(said, given, uid, gang)
        fences = shard_memory.fences(self.config(), request, gang)
        shard_memory.check(said, given, gang, fences)
        job = str(get_job({"job": str(job_id)} | request, "job"))
        totals = self.gangs.totals(gang, given, fences=fences)

        def with_memory(kind: str) -> Tenant:
            return Tenant(job_id, uid, replace(given, memory=kind), totals, job=job)

        if given.memory == "auto":
            tenant = with_memory("swap")
            why_not = self._why_not_swapped(tenant, request, chosen)
            if why_not:
                log.info("job %s has managed memory: %s", job, why_not)
                tenant = with_memory("managed")
                tenant.memory_why = why_not
            return tenant
        tenant = with_memory(given.memory)
        tenant.memory_why = "the job's options or the site's ask for it"
        if tenant.swaps:
            self._check_may_swap(tenant, request)
        return tenant

    def _why_not_swapped(self, tenant: Tenant, request: Request, chosen: bool) -> str:
        """Why a job with memory:auto has managed memory; "": its memory is swapped. chosen: the job
        or the site has asked for memory:auto; otherwise the job's own host memory is not used."""
        try:
            self._check_may_swap(tenant, request)
        except Refused as why:
            return str(why)
        if self.leases.tenants.offers_host():
            tenant.memory_why = "the node has host memory for what leaves the GPU"
        elif chosen:
            tenant.memory_why = "the job's own host memory suffices for what leaves the GPU"
        else:
            return "gpu-leased-copies does not run, and nobody has chosen memory:auto"
        return ""

    def _check_may_swap(self, tenant: Tenant, request: Request) -> None:
        others = self.leases.tenants.values()
        host_memory.check(self.config(), tenant)
        if not self.leases.tenants.offers_host():
            host_memory.check_own(self.config(), tenant, others, _memory_mib(request))

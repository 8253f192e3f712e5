"""Moves of jobs to another GPU of the node: who may ask, and what cannot move.

What is refused here has not been touched. docs/moving.md has the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leased.admin import label_check, parking, shard_memory, share_left
from leased.admin.gang import Gangs
from leased.base.errors import Refused
from leased.base.requests import Request, get_text
from leased.config.config import Config
from leased.config.options import OFFLINE
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving.device_access import DeviceAccess
from leased.moving.mover import Checks, Move, Mover
from leased.moving.saver import Save, Saver
from leased.processes.identity import Peer

OFF, ROOT, USERS, IDLE = "off", "root", "users", "idle"  # as limits.move names them
SPARE_PART = 32  # of a GPU: what a move needs there for a moment (moving/carrier_child.py)
# Why memory is fixed: something outside of the process may refer to it.
HELD = ("shared", "mapped")


@dataclass
class Moves:
    """access: to the device files of GPUs, where Slurm constrains them."""

    leases: Leases
    mover: Mover
    saver: Saver
    gangs: Gangs
    config: Callable[[], Config]
    refuses_offline: Callable[[str], str | None]
    has_mps: Callable[[str], bool]
    access: DeviceAccess

    def move(self, request: Request, peer: Peer) -> Mapping[str, Any]:
        """Begin to move a job of this user, or of any user for root."""
        tenant = self._named(request, peer)
        may = self.config().move
        if may == OFF or (may == ROOT and peer.uid != 0):
            words = "this site moves no jobs" if may == OFF else "only root moves jobs here"
            raise Refused(words, "the administrator can set limits.move in gpu-leased.toml")
        new = self._gpu(get_text(request, "gpu"))
        return shown(self.begin(tenant, new, f"user {peer.uid} asks for it"))

    def begin(self, tenant: Tenant, new: Gpu, by: str) -> Move:
        """Refused: the job cannot move there, and has not been touched."""
        self._check_alone(tenant)
        total, checks = self.plan(tenant, new)
        return self.mover.begin(tenant, new, total, by, checks)

    def plan(self, tenant: Tenant, new: Gpu) -> tuple[int, Checks]:
        """What the job would see of that GPU (bytes), and what to ask while it moves. Refused: it
        cannot move there now."""
        old = self.leases.gpus[tenant.gang[0]]
        fences = shard_memory.moved(self.config(), old, new, tenant.totals[old.uuid])
        total = self.gangs.totals([new], tenant.given, fences=fences)[new.uuid]

        def check() -> None:
            self.check(tenant, new)
            self._check_room(tenant, new, total)

        def check_drained() -> None:
            self._check_processes(tenant)
            self._check_gpu(tenant, new)
            self._check_room(tenant, new, total)

        check()
        return total, Checks(check, check_drained, lambda: self._carried(tenant, new))

    def _carried(self, tenant: Tenant, new: Gpu) -> int:
        """All of its memory (bytes), if it has room there beside all that jobs there may have; and
        beside what is there for a moment while it moves. Else 0."""
        memory = self.leases.view.device(tenant.gang[0]).residency.of(tenant.job_id)
        there = self.leases.view.device(new.uuid)
        taken = sum(has.bytes + has.fixed for has in there.memory().values())
        room = there.residency.room - taken - new.memory // SPARE_PART
        return memory.bytes if memory.bytes + memory.fixed <= room else 0

    def moved(self, request: Request, peer: Peer) -> Mapping[str, Any]:
        """How the last move of a job goes, or how it ended."""
        tenant = self._named(request, peer)
        move = self.mover.last(tenant.job_id)
        if move is None:
            raise Refused(f"job {tenant.job} has not been moved", "gpu-leasectl move JOB --to GPU")
        return shown(move)

    def save(self, request: Request, peer: Peer) -> Mapping[str, Any]:
        """Keep a job of this user still, so that its memory can be saved."""
        tenant = self._named(request, peer)
        self._check_alone(tenant)
        self.check_save(tenant)
        return saved(self.saver.begin(tenant, partial(self._check_saved, tenant)))

    def saving(self, request: Request, peer: Peer) -> Mapping[str, Any]:
        """How that goes."""
        return saved(self.saver.find(self._named(request, peer)))

    def saved(self, request: Request, peer: Peer) -> Mapping[str, Any]:
        """Whoever saves it is done."""
        return saved(self.saver.find(self._named(request, peer), is_over=True))

    def _named(self, request: Request, peer: Peer) -> Tenant:
        found = parking.own_jobs(self.leases, request, peer)
        if len(found) > 1:
            raise Refused(f"job {request['job_id']} is several jobs here", "name one of them")
        return found[0]

    def _gpu(self, name: str) -> Gpu:
        self.gangs.renumber()
        gpus = self.leases.gpus.slurms()
        for gpu in gpus:
            if name in (str(gpu.index), gpu.uuid):
                return gpu
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        raise Refused(f"no GPU {name}", f"there are {known}")

    # -- what cannot move ------------------------------------------------------------

    def _check_alone(self, tenant: Tenant) -> None:
        """Refused: it is being moved or saved, of which only one may park it."""
        job = tenant.job_id
        if self.saver.saves(job) or self.mover.moves(job):
            raise Refused(f"job {tenant.job} is being moved or saved", "wait for its end")

    def check(self, tenant: Tenant, new: Gpu) -> None:
        """Refused: the job cannot move to that GPU, and why."""
        self._check_kind(tenant)
        self._check_processes(tenant)
        self._check_gpu(tenant, new)
        self.access.check((client.pid for client in tenant.clients), new.minor)

    def check_save(self, tenant: Tenant) -> None:
        """Refused: the job's memory cannot be saved to files, and why."""
        self._check_kind(tenant)
        self._check_saved(tenant)

    def _check_saved(self, tenant: Tenant) -> None:
        self._check_processes(tenant)
        for client in tenant.clients:
            if not client.saves:
                words = f"process {client.pid} of job {tenant.job} began with an older release"
                raise Refused(words, "jobs that begin from now on can be saved")

    def _check_kind(self, tenant: Tenant) -> None:
        uuid, state = tenant.gang[0], self.leases.view.tenant(tenant.job_id)
        if len(tenant.gang) != 1:
            raise Refused(f"job {tenant.job} has {len(tenant.gang)} GPUs", "only jobs of one can")
        if not tenant.swaps:
            words = f"job {tenant.job} has managed memory, which no driver checkpoints"
            raise Refused(words, "submit it with --gpu-share=memory:swap")
        if tenant.chain:
            raise Refused(f"job {tenant.job} is of chain:{tenant.chain}, which is on one GPU")
        if tenant.nodes:
            raise Refused(f"job {tenant.job} is on several nodes, which agree on its GPUs")
        if self.has_mps(uuid):
            raise Refused(f"job {tenant.job} is on a GPU of NVIDIA's MPS")
        if state.frozen or (state.parked is not None and state.parked.suspended):
            raise Refused(f"job {tenant.job} is stopped, suspended, being moved or saved")
        if self.leases.allocation_waits(tenant):
            raise Refused(f"job {tenant.job} waits for host memory", "ask again later")

    def _check_processes(self, tenant: Tenant) -> None:
        if not tenant.clients:
            raise Refused(f"no process of job {tenant.job} uses the GPU now")
        for client in tenant.clients:
            if not client.moves:
                words = f"process {client.pid} of job {tenant.job} began with an older release"
                raise Refused(words, "jobs that begin from now on can be moved")
            held = [why for d in client.details.values() for why in HELD if d.fixed.get(why)]
            if client.keeper or held:
                raise Refused(
                    f"process {client.pid} of job {tenant.job} has memory to which others may "
                    "refer (CUDA IPC, or exported)"
                )

    def _check_gpu(self, tenant: Tenant, new: Gpu) -> None:
        old = self.leases.gpus[tenant.gang[0]]
        if new.uuid == old.uuid:
            raise Refused(f"job {tenant.job} is on GPU {new.index} already")
        if (new.name, new.memory) != (old.name, old.memory):
            raise Refused(
                f"GPU {new.index} ({new.name}) is not of the kind of GPU {old.index} ({old.name})",
                "the driver restores a process only on a GPU of the same chip",
            )
        self.gangs.refuse_faulty([new])
        if self.has_mps(new.uuid):
            raise Refused(f"GPU {new.index} is shared by NVIDIA's MPS")
        if self.leases.view.device(new.uuid).state.drained:
            raise Refused(f"GPU {new.index} is drained", f"gpu-leasectl resume {new.index}")
        others = [other for other in self.leases.tenants.values() if other is not tenant]
        label_check.check(tenant.given, [new], others)
        further = Tenant(tenant.job_id, tenant.uid, tenant.given, {new.uuid: 1})
        share_left.check_more(self.leases, further)
        why = self.refuses_offline(new.uuid) if tenant.given.job_class == OFFLINE else None
        if why is not None:
            raise Refused(f"GPU {new.index} takes no offline jobs now: it is {why}")

    def _check_room(self, tenant: Tenant, new: Gpu, total: int) -> None:
        """What the driver takes along has to fit beside what is there: a restore without room is
        final. The rest may wait for its turn, as any job's."""
        old = tenant.gang[0]
        memory = self.leases.view.device(old).residency.of(tenant.job_id)
        if memory.bytes + memory.fixed > total:
            raise Refused(f"job {tenant.job} has more memory than it would see of GPU {new.index}")
        there, here = self.leases.gpus.overheads[new.uuid], self.leases.gpus.overheads[old]
        taken = there.taken + sum(
            has.fixed + self.leases.view.device(new.uuid).residency.evictable(job)
            for job, has in self.leases.view.device(new.uuid).memory().items()
        )
        need = memory.fixed + sum(
            here.contexts.get(client.pid, here.context) for client in tenant.clients
        )
        if need > new.memory - taken:
            words = f"GPU {new.index} has no room for the contexts of job {tenant.job}"
            raise Refused(words, "wait until a job there has ended, or park it")


def saved(save: Save) -> dict[str, Any]:
    """A save as whoever saves it sees it."""
    processes = [[pid, at] for pid, at in save.processes.items()]
    return {"job": save.job, "state": save.state, "why": save.why, "processes": processes}


def shown(move: Move) -> dict[str, Any]:
    """A move as its user sees it."""
    return {
        "job": move.job,
        "from": move.old.index,
        "to": move.new.index,
        "state": move.state,
        "why": move.why,
        "dead_s": round(move.dead_s, 3),
        "driver_s": round(move.driver_s, 3),
        "took_s": {phase: round(took, 3) for phase, took in move.took.items()},
    }

"""What every local user may ask on tenant.sock: about the user's own jobs, and as much about
others' as the site allows.

The kernel says which user asks. A question is one JSON object in one packet, and so is the answer;
then the connection is closed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from leased.admin import details, parking
from leased.admin.moves import Moves
from leased.api import own_job_answers as answers
from leased.base import job_names
from leased.base.errors import Refused
from leased.base.requests import Request, check_fields, get_job, shown
from leased.config.config import Config
from leased.leasing import sharing_mode, waiting_reason
from leased.leasing.arbiter_view import DeviceView, HeldLease
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer
from leased.slurm import step_record
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.usage.usage import figures

ANSWER_BYTES = 65_536  # of jobs in one answer, which is one packet
HOLDERS_MOST = 8  # of a device, that are named

Question = Callable[[Request, Peer], Mapping[str, Any]]
Parks = Callable[[Leases, Request, Peer], list[Tenant]]


T = TypeVar("T")


def _that_fit(told: Iterable[T]) -> list[T]:
    """The first ones, as many as one answer holds; one at least."""
    fit: list[T] = []
    room = ANSWER_BYTES
    for one in told:
        room -= len(json.dumps(one))
        if fit and room < 0:
            break
        fit.append(one)
    return fit


def _ended(record: TenantRecord) -> answers.EndedJob:
    return {
        "job_id": record.job_id,
        "job": record.job,
        "usage": {uuid: figures(used) for uuid, used in record.usage.items()},
        "steps": step_record.said(record.steps),
        "nodes": list(record.nodes),
    }


@dataclass
class Questions:
    """Answers the questions. find: the tenant of a process. config: the configuration in force.
    moves: of jobs to other GPUs."""

    leases: Leases
    store: Store
    find: Callable[[Peer], Tenant | None]
    config: Callable[[], Config]
    moves: Moves

    def handle(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Answer one question. Refused: what is wrong with it."""
        questions: dict[str, tuple[tuple[str, ...], Question]] = {
            "mine": (("job_id",), self._mine),
            "env": ((), self._env),
            "park": (("job_id",), partial(self._parks, parking.park)),
            "unpark": (("job_id",), partial(self._parks, parking.unpark)),
            "move": (("job_id", "gpu"), self.moves.move),
            "moved": (("job_id",), self.moves.moved),
            "save": (("job_id",), self.moves.save),
            "saving": (("job_id",), self.moves.saving),
            "saved": (("job_id",), self.moves.saved),
        }
        name = request.get("op")
        if not isinstance(name, str) or name not in questions:
            raise Refused(
                f"unknown question {shown(name)}", f"known are {', '.join(sorted(questions))}"
            )
        fields, answer = questions[name]
        check_fields(request, fields)
        return dict(answer(request, peer))

    def _own(self, peer: Peer) -> list[Tenant]:
        """The user's jobs, and the one in which the process runs, by their number."""
        mine = {t.job_id: t for t in self.leases.tenants.values() if t.uid == peer.uid}
        here = self.find(peer)
        if here is not None:
            mine[here.job_id] = here
        return [mine[job_id] for job_id in sorted(mine)]

    def _mine(self, request: Request, peer: Peer) -> answers.Mine:
        own = self._own(peer)
        if "job_id" in request:
            asked = get_job(request, "job_id")
            own = [t for t in own if job_names.means(asked, t.job_id, t.job)]
            if not own:
                return {"jobs": [], **self._ended(asked, peer)}
        told = _that_fit(self._job(tenant) for tenant in own)
        return {"jobs": told, "more": len(own) - len(told)}

    def _ended(self, asked: int | str, peer: Peer) -> answers.Ended:
        """The last run of a job of this user, or of each task of an array. Others' are refused like
        jobs that do not exist."""
        found = [record for record in self.store.find(asked) if record.uid == peer.uid]
        if not found:
            raise Refused(
                f"job {asked} is not a job of yours that shared a GPU of this node",
                f"sacct -j {asked} says where it ran, and gpu-leasectl report -j {asked} shows "
                "what it had from any host",
            )
        told = _that_fit(map(_ended, found))
        return {"ended": told, "more": len(found) - len(told)}

    def _env(self, _: Request, peer: Peer) -> answers.Env:
        """What a process of a sharing job needs in its environment; nothing for others."""
        tenant = self.find(peer)
        if tenant is None:
            return {"job_id": None}
        config = self.config()
        return {
            "job_id": tenant.job_id,
            "preload": config.preload,
            "env": {"GPU_LEASE_SOCKET": str(config.tenant_socket)},
        }

    def _parks(self, do: Parks, request: Request, peer: Peer) -> answers.Mine:
        tenants = do(self.leases, request, peer)
        told = _that_fit(map(self._job, tenants))
        return {"jobs": told, "more": len(tenants) - len(told)}

    # -- one job ------------------------------------------------------------------

    def _job(self, tenant: Tenant) -> answers.OwnJob:
        state = self.leases.view.tenant(tenant.job_id)
        usage = self.leases.tenants.usage([tenant.job_id])[tenant.job_id]
        waits = state.waiting or self.leases.allocation_waits(tenant)
        return {
            "job_id": tenant.job_id,
            "job": tenant.job,
            "state": state.state,
            "stopped": state.frozen,
            "parked": parking.shown(self.leases, tenant),
            "since_s": self._passed(state.since),
            "lock": self.leases.view.rules.lock_of(state),
            "memory": tenant.memory_kind,
            "quantum_s": tenant.given.quantum_ns / 1e9,
            "job_class": tenant.given.job_class,
            "share": details.share(self.leases, tenant),
            "clients": len(tenant.clients),
            "nodes": list(tenant.nodes),
            "reason": self._reason(tenant) if waits else None,
            "gpus": [
                cast(answers.OwnGpu, self._gpu(tenant, uuid) | figures(usage[uuid]))
                for uuid in tenant.gang
                if uuid in self.leases.view.rules.devices
            ],
        }

    def _reason(self, tenant: Tenant) -> answers.Reason | None:
        """Why the job waits, if not only for its turn."""
        why = waiting_reason.reason(self.leases, tenant)
        return answers.Reason(code=why.code, text=why.text) if why.text else None

    def _gpu(self, tenant: Tenant, uuid: str) -> answers.GpuOfJob:
        device = self.leases.view.device(uuid)
        memory, queue = device.residency.of(tenant.job_id), device.queue
        holders = itertools.islice(device.holders, HOLDERS_MOST)
        return {
            "index": self.leases.gpus[uuid].index,
            "uuid": uuid,
            "mode": sharing_mode.of(device).word,
            "before": queue.index(tenant.job_id) if tenant.job_id in queue else None,
            "holders": [self._holder(tenant, lease) for lease in holders],
            "quantum_left_s": self._left(device),
            "wanted_bytes": memory.bytes + memory.fixed,
            "resident_bytes": device.residency.evictable(tenant.job_id),
        }

    def _holder(self, asks: Tenant, lease: HeldLease) -> answers.Holder:
        """As much about a holder as the site lets its users see (limits.holder_shown)."""
        holder = self.leases.tenants[lease.job_id]
        uid, own = holder.uid, holder.uid == asks.uid
        may = "user" if own else self.config().holder_shown
        return {
            "job_id": None if may == "nothing" else lease.job_id,
            "job": None if may == "nothing" else holder.job,
            "uid": uid if may == "user" else None,
            "own": own,
            "since_s": self._passed(lease.since),
        }

    def _left(self, device: DeviceView) -> float | None:
        """Seconds until the first holder is revoked; None: no job waits for the device."""
        left = [ns for ns in map(self._left_ns, device.holders) if ns is not None]
        return round(min(left) / 1e9, 3) if left else None

    def _left_ns(self, lease: HeldLease) -> int | None:
        if lease.revoked:
            return 0
        return None if lease.ends is None else max(0, lease.ends - self.leases.clock())

    def _passed(self, since: int | None) -> float | None:
        return None if since is None else round((self.leases.clock() - since) / 1e9, 3)

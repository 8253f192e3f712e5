"""The requests on admin.sock: register and join a step, end a job, show, set and drain.

One table has every operation with its fields and with who may ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from leased.admin.gang import Gangs
from leased.admin.gpu_numbers import GpuNumbers
from leased.admin.jobs import Jobs
from leased.admin.registration import Registration
from leased.admin.settings import Settings
from leased.admin.status import NOTHING_SEEN, Seen, Status
from leased.admin.takeover import Takeover
from leased.api.answers import TenantPage
from leased.api.step_fields import JOIN_FIELDS, REGISTER_FIELDS
from leased.base.errors import Refused
from leased.base.requests import (
    OF_DEVICE,
    OF_NODE,
    Request,
    check_fields,
    get_int,
    get_job,
    get_text,
    shown,
)
from leased.base.words import jobs
from leased.config.config import Config
from leased.gpus.devices import Gpu
from leased.mps.mps import Mps
from leased.processes.identity import Peer
from leased.slurm import step_record
from leased.store.records import LAST_JOB, TenantRecord
from leased.usage.step_usage import StepUsage
from leased.usage.usage import figures

log = logging.getLogger("gpu-leased")

ROOT, ADMINS, ANYONE = "root", "root and the admin group", "whoever may open the socket"

Operation = Callable[[Request, Peer], Mapping[str, Any]]


class Admin:
    """Answers the requests.

    config: the one in force. reload: reads it again; returns what is wrong with it, if anything.
    job_ended: called with a job that is over, to write its usage. seen: what status shows of what
    monitors have seen.
    """

    def __init__(
        self,
        config: Config,
        jobs: Jobs,
        reload: Callable[[], str | None],
        job_ended: Callable[[int], None],
        *,
        admin_gid: int = -1,
        seen: Seen = NOTHING_SEEN,
    ):
        self.config = config
        self.jobs = jobs
        self.leases, self.store = jobs.leases, jobs.store
        self.reload = reload
        self.job_ended = job_ended
        self.admin_gid = admin_gid
        self.settings = Settings(self.leases, self.store, lambda: self.config)
        self.renumber = GpuNumbers(self.leases, self.settings, lambda: self.config)
        self.shows = Status(self.leases, self.settings, self.store, jobs.cluster, seen)
        gangs = Gangs(self.leases, self.renumber, lambda: self.config.classes.online_memory)
        self.registration = Registration(
            *(self.leases, self.store, jobs.stepds, jobs.cluster, gangs),
            *(lambda: self.config, self.settings.limits, job_ended),
            mps=seen.mps or Mps(self.leases, lambda: self.config),
            refuses_offline=seen.health.refusal if seen.health else lambda _: None,
        )
        self.takeover = Takeover(self.leases, self.store, gangs, lambda: self.config.defaults)
        # By name: who may ask, the fields, who answers.
        self.operations: dict[str, tuple[str, tuple[str, ...], Operation]] = {
            "register": (ROOT, REGISTER_FIELDS, self.registration.register),
            "join": (ROOT, JOIN_FIELDS, self.registration.join),
            "job_end": (ROOT, ("job_id",), self.job_end),
            "reload": (ROOT, (), self.do_reload),
            "status": (ANYONE, ("after",), self.status),
            "usage": (ANYONE, ("job_id",), self.usage),
            "set": (ADMINS, ("device", *OF_DEVICE, *OF_NODE), self.set),
            "drain": (ADMINS, ("device",), self.drain),
            "resume": (ADMINS, ("device",), self.resume),
        }

    def take_over(self, records: Iterable[TenantRecord], *, rebooted: bool) -> None:
        """The tenants of the previous daemon go on, or end if the node has rebooted."""
        if not rebooted:
            self.takeover.restore_all(records)
            return
        for record in records:  # after a boot no job runs on, whatever Slurm does with it
            self.takeover.give_up(record)

    def handle(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Serve one request. Refused: what is wrong with it."""
        name = request.get("op")
        if not isinstance(name, str) or name not in self.operations:
            raise Refused(f"unknown op {shown(name)}", f"known are {', '.join(self.operations)}")
        who, fields, operation = self.operations[name]
        if not self._may(peer, who):
            hint = "ask root or a member of daemon.admin_group" if who == ADMINS else "run as root"
            raise Refused(f"only {who} may ask for {name}", hint)
        check_fields(request, fields)
        return dict(operation(request, peer))

    def _may(self, peer: Peer, who: str) -> bool:
        if peer.uid == 0 or who == ANYONE:
            return True
        return who == ADMINS and self.admin_gid in (peer.gid, *peer.groups)

    def job_end(self, request: Request, _: Peer) -> dict[str, Any]:
        """The job is over on this node. A job that never shared is no error."""
        job_id = get_int(request, "job_id", 1, LAST_JOB)
        if job_id in self.leases.tenants:
            self.job_ended(job_id)
        return {}

    # -- looking and setting ------------------------------------------------------

    def status(self, request: Request, _: Peer) -> TenantPage:
        """Everything, or (after: a job id) the tenants that had no room in the answer before."""
        if "after" in request:
            return self.shows.page(get_int(request, "after", 0, LAST_JOB))
        return self.shows.first()

    def usage(self, request: Request, _: Peer) -> dict[str, Any]:
        """A job's usage, also after its end."""
        asked = get_job(request, "job_id")
        job_id, job = self._one(asked)
        current = self.leases.tenants.usage([job_id]).get(job_id)
        steps: Mapping[str, StepUsage]
        if current is not None:
            steps = self.leases.tenants.steps.divided(job_id, current)
        else:
            (record,) = self.store.find(job_id)
            current, steps = dict(record.usage), record.steps
        usage = {uuid: figures(used) for uuid, used in current.items()}
        return {"job_id": job_id, "job": job, "usage": usage, "steps": step_record.said(steps)}

    def _one(self, asked: int | str) -> tuple[int, str]:
        """The number and the name of the only job that this means. Refused: there is none, or
        there are several."""
        found = {tenant.job_id: tenant.job for tenant in self.leases.tenants.named(asked)}
        found = found or {record.job_id: record.job for record in self.store.find(asked)}
        if not found:
            raise Refused(
                f"job {asked} never shared a GPU of this node", f"look for it with sacct -j {asked}"
            )
        if len(found) > 1:
            raise Refused(
                f"{asked} is several jobs here: {jobs([found[job] for job in sorted(found)])}",
                f"name one of them, or add them up with gpu-leasectl report -j {asked}",
            )
        return next(iter(found.items()))

    def set(self, request: Request, _: Peer) -> dict[str, Any]:
        """Force something on one device or all, or change what users may choose."""
        wanted = {key: get_text(request, key) for key in request if key in OF_DEVICE | OF_NODE}
        if not wanted:
            raise Refused("nothing to set", f"give one of {', '.join(OF_DEVICE | OF_NODE)}")
        return self._change(request, wanted)

    def drain(self, request: Request, _: Peer) -> dict[str, Any]:
        """No new lease on a device; its holder keeps the lease to the end of its quantum."""
        return self._change(request, {"drain": "yes"})

    def resume(self, request: Request, _: Peer) -> dict[str, Any]:
        """Undo a drain."""
        return self._change(request, {"drain": "user"})

    def _change(self, request: Request, wanted: dict[str, str]) -> dict[str, Any]:
        chosen = self._chosen(get_text({"device": "all"} | request, "device"))
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
            raise Refused(f"no device {name or shown(name)}", f"there are {known}, and all")
        return found

    def do_reload(self, _: Request, __: Peer) -> dict[str, Any]:
        return {"fault": self.reload()}

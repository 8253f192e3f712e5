"""Moves jobs to GPUs that are idle, by itself (limits.move_idle): moving/idle_gpus.py chooses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from leased.admin.moves import Moves
from leased.base.errors import Refused
from leased.gpus.devices import Gpu
from leased.leasing.tenant import Tenant
from leased.moving.choice import Choice
from leased.moving.idle_gpus import BEAT_S, IdleGpus, Looked

log = logging.getLogger("gpu-leased")

REST_S = 1.0
WHY = "it takes turns with others, and that GPU has room for it"


@dataclass
class IdleMoves:
    """Call beat() every pause() seconds. hindered: by job, what has hindered its move, which the
    log says once."""

    moves: Moves
    gpus: IdleGpus = field(default_factory=IdleGpus)
    hindered: dict[int, str] = field(default_factory=dict)

    def pause(self) -> float:
        """Seconds. Where it is off, all that is looked for is whether it is still."""
        return BEAT_S if self.moves.config().move_idle else REST_S

    async def beat(self) -> None:
        """Look once, and begin a move if one is worth it."""
        leases, mover = self.moves.leases, self.moves.mover
        if not self.moves.config().move_idle:
            self.gpus.forget()
            return
        now = leases.clock()
        moves = {job: mover.last(job) for job in leases.tenants}
        touched = {job: move.touched_ns for job, move in moves.items() if move and move.touched_ns}
        self.gpus.note(touched, leases.tenants)
        self.hindered = {job: why for job, why in self.hindered.items() if job in leases.tenants}
        seen = self.gpus.look(now, self._looked())
        while not mover.busy and (chosen := self.gpus.choose(now, seen, self._may)) is not None:
            new = leases.gpus[chosen.to]
            why = await mover.why_taken(new)
            if not why:
                self.gpus.begins(now, chosen.job)
                self._begin(leases.tenants.get(chosen.job), new)
                return
            self._note(chosen.job, why)
            # That GPU may be free at the next look.
            seen = [one for one in seen if one.uuid != chosen.to]

    def _begin(self, tenant: Tenant | None, new: Gpu) -> None:
        """Unless it has ended, or cannot move any more."""
        with suppress(Refused):
            if tenant is not None:
                self.moves.begin(tenant, new, WHY)

    def _may(self, chosen: Choice) -> bool:
        """Whether nothing of the daemon's knowledge hinders that move now."""
        tenant = self.moves.leases.tenants.get(chosen.job)
        if tenant is None:
            return False
        try:
            self.moves.plan(tenant, self.moves.leases.gpus[chosen.to])
        except Refused as fault:
            self._note(chosen.job, str(fault))
            return False
        return True

    def _note(self, job_id: int, why: str) -> None:
        if self.hindered.get(job_id) != why:
            self.hindered[job_id] = why
            log.info("job %d takes turns and could move, but %s", job_id, why)

    def _looked(self) -> Iterator[Looked]:
        leases = self.moves.leases
        for gpu in leases.gpus.slurms():
            device = leases.view.device(gpu.uuid)
            usable = not leases.gpus.fault_of(gpu.uuid) and not device.state.drained
            kind = f"{gpu.name} {gpu.memory}"
            there = leases.tenants.sharing(gpu.uuid)
            still = frozenset(t.job_id for t in there if any(c.stopped for c in t.clients))
            yield Looked(device, kind, gpu.link.bytes_s or 1e9, usable, still)

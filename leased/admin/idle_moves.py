"""Moves jobs to GPUs that are idle, by itself (limits.move_idle): moving/idle_gpus.py chooses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from leased.admin.moves import Moves
from leased.base.errors import Refused
from leased.moving.idle_gpus import IdleGpus, Looked

log = logging.getLogger("gpu-leased")

WHY = "it takes turns with others, and that GPU has room for it"


@dataclass
class IdleMoves:
    """Call beat() every idle_gpus.BEAT_S."""

    moves: Moves
    gpus: IdleGpus = field(default_factory=IdleGpus)

    async def beat(self) -> None:
        """Look once, and begin a move if one is worth it."""
        leases, mover = self.moves.leases, self.moves.mover
        if not self.moves.config().move_idle:
            self.gpus.forget()
            return
        now = leases.clock()
        self.gpus.note(now, filter(mover.is_moving, leases.tenants), leases.tenants)
        if mover.busy:
            return
        chosen = self.gpus.choose(now, self._looked())
        if chosen is None:
            return
        tenant = leases.tenants[chosen.job]
        try:
            self.moves.begin(tenant, leases.gpus[chosen.to], WHY)
        except Refused as why:
            log.info("job %s takes turns and could move, but %s", tenant.job, why)

    def _looked(self) -> Iterator[Looked]:
        leases = self.moves.leases
        for gpu in leases.gpus.slurms():
            device = leases.view.device(gpu.uuid)
            usable = not leases.gpus.fault_of(gpu.uuid) and not device.state.drained
            kind = f"{gpu.name} {gpu.memory}"
            yield Looked(device, kind, gpu.link.bytes_s or 1e9, usable)

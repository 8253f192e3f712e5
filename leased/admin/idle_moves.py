"""Moves jobs to GPUs that are idle, by itself (limits.move_idle): moving/choice.py chooses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from leased.admin.moves import Moves
from leased.base.errors import Refused
from leased.moving.choice import DeviceSeen, choose

log = logging.getLogger("gpu-leased")

BEAT_S = 1.0
WHY = "it takes turns with others, and that GPU has room for it"


@dataclass
class IdleMoves:
    """Call beat() every BEAT_S. since: by device, since when its jobs have taken turns as they do
    not fit together (ns). tried: by job, when it was last moved by anybody, or refused."""

    moves: Moves
    since: dict[str, int] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)

    async def beat(self) -> None:
        """Look once, and begin a move if one is worth it."""
        leases = self.moves.leases
        if not self.moves.config().move_idle:
            self.since.clear()
            return
        now = leases.clock()
        self.tried = {job: at for job, at in self.tried.items() if job in leases.tenants}
        self.tried |= {job: now for job in leases.tenants if self.moves.mover.is_moving(job)}
        seen = list(self._seen(now))
        if self.moves.mover.busy:
            return
        chosen = choose(seen, {job: now - at for job, at in self.tried.items()})
        if chosen is None:
            return
        tenant = leases.tenants[chosen.job]
        self.tried[chosen.job] = now
        try:
            self.moves.begin(tenant, leases.gpus[chosen.to], WHY)
        except Refused as why:
            log.info("job %s takes turns and could move, but %s", tenant.job, why)

    def _seen(self, now: int) -> Iterator[DeviceSeen]:
        """The devices of which all jobs have one GPU, no fault, and are not drained."""
        leases = self.moves.leases
        for gpu in leases.gpus.slurms():
            device = leases.view.device(gpu.uuid)
            turns = frozenset(device.locks()) if device.too_much else frozenset[int]()
            since = self.since.setdefault(gpu.uuid, now) if len(turns) > 1 else now
            if len(turns) < 2:
                self.since.pop(gpu.uuid, None)
            if leases.gpus.fault_of(gpu.uuid) or device.state.drained:
                continue
            yield DeviceSeen(
                *(gpu.uuid, f"{gpu.name} {gpu.memory}", device.residency.room),
                {job: has.bytes + has.fixed for job, has in device.memory().items()},
                turns,
                now - since,
                gpu.link.bytes_s or 1e9,
            )

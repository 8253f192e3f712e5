"""limits.move_idle in the simulator: the daemon's own choice of jobs that move to an idle GPU.

A move is simulated as moving/mover.py does it: the job is parked, its memory leaves, the driver
takes its time, and the job counts on the other GPU, where its memory comes back with its lease.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from leased.core.events import Closed, Parked, UsageRestored
from leased.leasing.arbiter_view import DeviceView
from leased.moving.choice import DRIVER_S, Choice
from leased.moving.idle_gpus import BEAT_S, IdleGpus, Looked
from leased.sim.jobs import MS, S, name_of
from leased.sim.node import SimulatedNode, opened

BY = "a move"
POLL_NS = 3 * MS


class Moved(NamedTuple):
    """at: when the job counted on the other GPU (ns)."""

    at: int
    who: int
    gpu: int


class IdleMoves:
    """moved: all moves so far."""

    def __init__(self, node: SimulatedNode):
        self._node = node
        self._gpus = IdleGpus()
        self._moving: int | None = None
        self.moved: list[Moved] = []

    def begin(self) -> None:
        self._node.timeline.after(round(BEAT_S * S), self._beat)

    def _beat(self) -> None:
        node, now = self._node, self._node.timeline.now
        moving = {} if self._moving is None else {self._moving: now}
        self._gpus.note(moving, node.clients)
        seen = self._gpus.look(now, self._looked())
        chosen = None if moving else self._gpus.choose(now, seen, self._may)
        if chosen is not None:
            self._move(chosen)
        if node.clients:
            self.begin()

    def _looked(self) -> list[Looked]:
        arbiter = self._node.arbiter
        return [
            Looked(DeviceView(arbiter, device), f"{memory.gpu.memory}", memory.gpu.link_bytes_s)
            for device, memory in zip(arbiter.devices.values(), self._node.memory)
        ]

    def _may(self, chosen: Choice) -> bool:
        client = self._node.clients[chosen.job]
        return client.swaps and len(client.job.gpus) == 1

    def _move(self, chosen: Choice) -> None:
        self._moving = chosen.job
        self._node.tell(Parked(chosen.job, BY, suspended=True))
        self._wait(chosen)

    def _wait(self, chosen: Choice) -> None:
        """Until it has given up its lease and all of its memory."""
        client = self._node.clients.get(chosen.job)
        if client is None:
            self._moving = None
        elif client.epoch or client.moves or any(map(client.there, client.out)):
            self._node.timeline.after(POLL_NS, lambda: self._wait(chosen))
        else:
            self._node.timeline.after(round(DRIVER_S * S), lambda: self._arrive(chosen))

    def _arrive(self, chosen: Choice) -> None:
        self._moving = None
        node, client = self._node, self._node.clients.get(chosen.job)
        if client is None:
            return
        (old,), (new,) = client.job.gpus, (int(chosen.to.removeprefix("GPU-")),)
        used = node.arbiter.usage(chosen.job, node.timeline.now)
        node.tell(Closed(chosen.job))
        node.memory[old].forget(chosen.job)
        client.arrive(replace(client.job, gpus=(new,)))
        node.tell(opened(chosen.job, client.job))
        for uuid, usage in used.items():
            node.tell(UsageRestored(chosen.job, uuid, usage.amounts()))
        client.tell_memory()
        client.requested = False
        client.ask()
        self.moved.append(Moved(node.timeline.now, chosen.job, new))
        assert name_of(new) == chosen.to

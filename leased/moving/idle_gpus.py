"""Looks for jobs that should move to a GPU that is idle: what choice.py decides by, look by look.

The daemon uses it with its clock (admin/idle_moves.py), and the simulator with its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.leasing.arbiter_view import DeviceView
from leased.moving.choice import Choice, DeviceSeen, choose

BEAT_S = 0.5


class Looked(NamedTuple):
    """A GPU. link: bytes a second. usable: its jobs have one GPU each, it has no fault and is not
    drained."""

    device: DeviceView
    kind: str
    link: float
    usable: bool = True


@dataclass
class IdleGpus:
    """since: by device, since when its jobs have taken turns as they do not fit together (ns).
    tried: by job, when it was last moved by anybody, or refused."""

    since: dict[str, int] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Nothing moves by itself any more."""
        self.since.clear()

    def note(self, now: int, moving: Iterable[int], known: Container[int]) -> None:
        """Which jobs are being moved now, and which there are."""
        self.tried = {job: at for job, at in self.tried.items() if job in known}
        self.tried |= dict.fromkeys(moving, now)

    def choose(self, now: int, gpus: Iterable[Looked]) -> Choice | None:
        """The move that is worth it now, if any; it counts as tried."""
        seen = [self._seen(now, gpu) for gpu in gpus]
        rested = {job: now - at for job, at in self.tried.items()}
        chosen = choose((one for one in seen if one is not None), rested)
        if chosen is not None:
            self.tried[chosen.job] = now
        return chosen

    def _seen(self, now: int, gpu: Looked) -> DeviceSeen | None:
        device, uuid = gpu.device, gpu.device.state.uuid
        turns = frozenset(device.locks()) if device.too_much else frozenset[int]()
        if len(turns) < 2:
            self.since.pop(uuid, None)
        since = self.since.setdefault(uuid, now) if len(turns) > 1 else now
        if not gpu.usable:
            return None
        memory = device.memory()
        return DeviceSeen(
            *(uuid, gpu.kind, device.residency.room),
            {job: has.bytes + has.fixed for job, has in memory.items()},
            {job: device.residency.resident_of(job) + has.fixed for job, has in memory.items()},
            turns,
            now - since,
            gpu.link,
        )

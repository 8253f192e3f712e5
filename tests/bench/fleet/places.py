"""The fleet's GPUs as the placement sees them. GPUs that are alike are asked once: the answer is
that of all of them, for a thousandth of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from leased.placement import kubeshare
from leased.placement.api import Device, Placed, Request

ROUNDED = 1e-5  # of a share
State = tuple[float, int, Optional[int], bool]


def _state(device: Device) -> State:
    """All that placement without labels looks at."""
    return round(device.share, 6), device.memory, device.spare, device.is_idle


class Places:
    """nodes: how many GPUs each has; they are numbered through. spare: tenants of each."""

    def __init__(self, nodes: Sequence[int], memory: int, spare: int | None = None):
        self.devices = [Device(str(n), memory, spare=spare) for n in range(sum(nodes))]
        self.alike: dict[float, dict[State, dict[int, None]]] = {}  # by the share that is left
        self.nodes: list[range] = []
        for gpus in nodes:
            first = self.nodes[-1].stop if self.nodes else 0
            self.nodes.append(range(first, first + gpus))
        for gpu, device in enumerate(self.devices):
            self._group(device)[gpu] = None

    def place(self, request: Request) -> int | None:
        """The GPU that it gets, which has it from now on; None: it waits."""
        some = [
            self.devices[next(iter(gpus))]
            for share, states in self.alike.items()
            if share >= request.share - ROUNDED
            for gpus in states.values()
        ]
        answer = kubeshare.place(request, some)
        if not isinstance(answer, Placed):
            return None
        gpu = int(answer.device.name)
        self.join(gpu, request)
        return gpu

    def place_gang(self, request: Request, gpus: int) -> list[int] | None:
        """Idle GPUs of one node, of the one with the fewest that are enough."""
        found: list[int] | None = None
        for node in self.nodes:
            idle = [gpu for gpu in node if self.devices[gpu].is_idle]
            if len(idle) >= gpus and (found is None or len(idle) < len(found)):
                found = idle
        for gpu in found[:gpus] if found else ():
            self.join(gpu, request)
        return found[:gpus] if found else None

    def join(self, gpu: int, request: Request) -> None:
        self._change(gpu, self.devices[gpu].joined(request))

    def leave(self, gpu: int, request: Request) -> None:
        self._change(gpu, self.devices[gpu].left(request))

    def _change(self, gpu: int, device: Device) -> None:
        before = self.devices[gpu]
        group = self._group(before)
        del group[gpu]
        if not group:
            del self.alike[round(before.share, 6)][_state(before)]
        self.devices[gpu] = device
        self._group(device)[gpu] = None

    def _group(self, device: Device) -> dict[int, None]:
        states = self.alike.setdefault(round(device.share, 6), {})
        return states.setdefault(_state(device), {})

"""How much host memory copies may need: taken when device memory is allocated.

Of a device's tenants nobody's memory has to leave while all of it fits. Once it does not, so much
of each may have to as is too much in all, and no more than it has. That is what counts against
limits.swap_host, beside what is held already; what a job might allocate later does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PARTS = 32  # copies lie in pieces: a part of what a job may have, 256 MiB at most
LARGEST_PIECE = 256 << 20


@dataclass(frozen=True)
class DeviceUse:
    """One device. room: for all tenants' memory; movable, fixed: bytes of each, by job."""

    room: int
    movable: Mapping[int, int]
    fixed: Mapping[int, int]


@dataclass
class Claims:
    """devices: how they are used now. swaps: whether a job's memory is swapped."""

    devices: Callable[[], Mapping[str, DeviceUse]]
    swaps: Callable[[int], bool]
    # By process: its job, and what it was granted on each device.
    granted: dict[object, tuple[int, dict[str, int]]] = field(default_factory=dict)

    def set(self, process: object, job_id: int, uuid: str, size: int) -> None:
        """It may have so much on the device."""
        self.granted.setdefault(process, (job_id, {}))[1][uuid] = size

    def of(self, process: object, uuid: str) -> int:
        return self.granted[process][1].get(uuid, 0) if process in self.granted else 0

    def forget(self, process: object) -> None:
        self.granted.pop(process, None)

    def needs(self) -> Counter[int]:
        """By job: bytes that may have to leave its devices together."""
        needs: Counter[int] = Counter()
        for of_device in self.by_device().values():
            needs += of_device
        return needs

    def by_device(self) -> dict[str, Counter[int]]:
        """By device and job: bytes that may have to leave it."""
        claimed: dict[str, Counter[int]] = {}
        for job_id, sizes in self.granted.values():
            for uuid, size in sizes.items():
                claimed.setdefault(uuid, Counter())[job_id] += size
        return {
            uuid: self._of_device(use, claimed.get(uuid, Counter()))
            for uuid, use in self.devices().items()
        }

    def _of_device(self, use: DeviceUse, claimed: Counter[int]) -> Counter[int]:
        has = {job: max(use.movable.get(job, 0), claimed[job]) for job in {*use.movable, *claimed}}
        too_much = sum(has.values()) + sum(use.fixed.values()) - use.room
        if too_much <= 0:
            return Counter()
        piece = min(LARGEST_PIECE, use.room // PARTS)
        return Counter(
            {job: min(size, too_much) + piece for job, size in has.items() if self.swaps(job)}
        )

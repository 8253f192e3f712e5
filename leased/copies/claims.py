"""How much host memory copies may need. It is claimed when device memory is allocated.

While the memory of a device's tenants fits together, none of it has to be evicted. Once it does
not, each tenant may have to evict as many bytes as do not fit, but no more than it has. These bytes
count against limits.swap_host, beside copies that exist already. What a job might allocate later
does not count. Nor does what its processes claim beyond what the job may have, however many they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PARTS = 32  # the size of a segment is 1/PARTS of what a job may have, at most 256 MiB
LARGEST_PIECE = 256 << 20


@dataclass(frozen=True)
class DeviceUse:
    """The use of one device, in bytes. room: for all tenants. movable, fixed: of each, by job."""

    room: int
    movable: Mapping[int, int]
    fixed: Mapping[int, int]


@dataclass
class Claims:
    """The claims of all processes. devices: their use now. swaps: whether a job swaps. most: the
    bytes that a job may have on a device, by its UUID."""

    devices: Callable[[], Mapping[str, DeviceUse]]
    swaps: Callable[[int], bool]
    most: Callable[[int, str], int]
    # By process: its job, and what it was granted on each device.
    granted: dict[object, tuple[int, dict[str, int]]] = field(default_factory=dict)
    # By UUID and job, the same of all its processes.
    claimed: dict[str, Counter[int]] = field(default_factory=dict)

    def set(self, process: object, job_id: int, uuid: str, size: int) -> None:
        """The process may have so many bytes on the device from now on."""
        job_id, sizes = self.granted.setdefault(process, (job_id, {}))
        self._add(job_id, uuid, size - sizes.get(uuid, 0))
        sizes[uuid] = size

    def _add(self, job_id: int, uuid: str, size: int) -> None:
        of_device = self.claimed.setdefault(uuid, Counter())
        of_device[job_id] += size
        if not of_device[job_id]:
            del of_device[job_id]
        if not of_device:
            del self.claimed[uuid]

    def of(self, process: object, uuid: str) -> int:
        return self.granted[process][1].get(uuid, 0) if process in self.granted else 0

    def forget(self, process: object) -> None:
        job_id, sizes = self.granted.pop(process, (0, {}))
        for uuid, size in sizes.items():
            self._add(job_id, uuid, -size)

    def move(self, process: object, old: str, new: str) -> None:
        """What the process has on the one device is on the other from now on."""
        size = self.of(process, old)
        if size:
            job_id, sizes = self.granted[process]
            self.set(process, job_id, new, size + sizes.get(new, 0))
            self.set(process, job_id, old, 0)

    def needs(self) -> Counter[int]:
        """By job, the bytes that may have to be evicted from all its devices together."""
        needs: Counter[int] = Counter()
        for of_device in self.by_device().values():
            needs += of_device
        return needs

    def by_device(self) -> dict[str, Counter[int]]:
        """By UUID and job, the bytes that may have to be evicted from the device."""
        return {uuid: self._of_device(uuid, use) for uuid, use in self.devices().items()}

    def _of_device(self, uuid: str, use: DeviceUse) -> Counter[int]:
        sums = self.claimed.get(uuid, Counter())
        claimed = Counter({job: min(size, self.most(job, uuid)) for job, size in sums.items()})
        # A claim is for all that the job has there, also for what cannot be moved.
        has = {
            job: max(use.movable.get(job, 0), claimed[job] - use.fixed.get(job, 0))
            for job in {*use.movable, *claimed}
        }
        too_much = sum(has.values()) + sum(use.fixed.values()) - use.room
        if too_much <= 0:
            return Counter()
        piece = min(LARGEST_PIECE, use.room // PARTS)
        return Counter(
            {job: min(size, too_much) + piece for job, size in has.items() if self.swaps(job)}
        )

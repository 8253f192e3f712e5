"""The GPUs of this node, and how much memory of each the tenants can have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from leased.core.events import PolicySet, RoomChanged, SpeedKnown, WorkMeasured
from leased.gpus.devices import NOT_SLURMS, Gpu, Overhead, room
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.memory_reports import MemoryReports
from leased.leasing.registry import Registry


class NodeGpus:
    """All GPUs by UUID. faults: why a GPU takes no new jobs, as NVML says."""

    def __init__(
        self,
        gpus: list[Gpu],
        overheads: dict[str, Overhead],
        loop: ArbiterLoop,
        registry: Registry,
        reports: MemoryReports,
    ):
        self.by_uuid = {gpu.uuid: gpu for gpu in gpus}
        self.overheads = overheads
        self.ours: set[int] = set()  # the daemon's own processes, which are there for a moment
        self.faults: dict[str, str] = {}
        self.loop = loop
        self.registry = registry
        self.reports = reports
        for gpu in gpus:
            self._tell_speeds(gpu)
            self.loop.run(PolicySet(gpu.uuid, gpu.policy))

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.by_uuid.values())

    def __getitem__(self, uuid: str) -> Gpu:
        return self.by_uuid[uuid]

    def has(self, uuid: str) -> bool:
        return uuid in self.by_uuid

    def fault_of(self, uuid: str) -> str | None:
        """Why the GPU takes no new jobs; None: it takes them."""
        return self.faults.get(uuid)

    def slurms(self) -> list[Gpu]:
        """The devices that Slurm gives to jobs, by its index."""
        found = [gpu for gpu in self if gpu.index != NOT_SLURMS]
        return sorted(found, key=lambda gpu: gpu.index)

    def set_reserve(self, uuid: str, reserve: int | None) -> None:
        """Keep so many bytes of the device for contexts from now on; None: as NVML shows."""
        self.set(replace(self[uuid], reserve=reserve))

    def set(self, gpu: Gpu) -> None:
        """The device has other settings from now on. Speeds that were measured are kept."""
        before, self.by_uuid[gpu.uuid] = self[gpu.uuid], gpu
        if gpu == before:
            return
        if gpu.link != before.link:
            self._tell_speeds(gpu)
        if gpu.policy != before.policy:
            self.loop.run(PolicySet(gpu.uuid, gpu.policy))
        self._tell_room(gpu)

    def update(
        self, gpu: Gpu, processes: Mapping[int, int], unconnected: Collection[int] = ()
    ) -> None:
        """NVML has been polled. processes: bytes on the device by pid. unconnected: those of them
        that are jobs' and have no connection."""
        self.reports.check(gpu.uuid, processes, self.registry.sharing(gpu.uuid), unconnected)
        self._tell_room(gpu)

    def measured(self, work: WorkMeasured) -> None:
        """NVML has said how busy a device was since the last poll.

        Where nobody has held the device meanwhile, there is no lease to which that would be added.
        """
        if self.loop.view.device(work.device).state.gauge.was_held:
            self.loop.run(work)

    def _tell_speeds(self, gpu: Gpu) -> None:
        for speed, swaps in ((gpu.link, True), (gpu.paging, False)):
            self.loop.run(SpeedKnown(gpu.uuid, swaps, speed.bytes_s, speed.seen, speed.said))

    def _tell_room(self, gpu: Gpu) -> None:
        left = room(gpu, self.overheads[gpu.uuid].taken)
        if left != self.loop.view.device(gpu.uuid).residency.room:
            self.loop.run(RoomChanged(gpu.uuid, left))

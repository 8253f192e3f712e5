"""Polls NVML for the processes that use the devices, and for faults of the devices.

Shared devices are polled twice a second, all devices every few seconds. While every device is
drained and nobody holds one, NVML is closed, so that the driver can be unloaded.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from leased.base.waiting import Slices
from leased.gpus import nvml_answers
from leased.gpus.devices import Gpu
from leased.gpus.health import Health
from leased.gpus.nvml import Nvml, Silent
from leased.gpus.nvml_answers import MOST_XIDS, OF_NONE, Seen, Unsound
from leased.gpus.silence import SILENT
from leased.leasing.leases import Leases
from leased.monitors.process_monitor import ProcessMonitor
from leased.monitors.work_meter import WorkMeter
from leased.usage.gauge import WorkPart

log = logging.getLogger("gpu-leased")

LOOK_S = 0.5
ALL_S = 5.0  # between polls of all devices, also of those that no job shares
AGAIN_S = 10.0  # between attempts to see a faulty device by opening NVML again


@dataclass
class DeviceMonitor:
    """Call beat() every LOOK_S."""

    nvml: Nvml
    leases: Leases
    watch: ProcessMonitor
    health: Health
    busy: dict[str, int | None] = field(default_factory=dict)  # percent, by UUID
    clocks: dict[str, float | None] = field(default_factory=dict)  # of the highest, by UUID
    # By UUID, errors of memory that could not be corrected: at first, and now.
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost_rows: set[str] = field(default_factory=set)  # devices whose bad rows were not replaced
    # By UUID, errors that the driver has told of and nobody has asked for yet.
    xids: dict[str, list[int]] = field(default_factory=dict)
    closed: bool = False  # whether NVML is closed, for an update of the driver
    all_at: float = 0.0
    again_at: float = 0.0
    strangers: set[str] = field(default_factory=set)  # new devices that the log has named
    meter: WorkMeter = field(default_factory=WorkMeter)

    async def beat(self) -> None:
        """Poll the devices that are due."""
        hangs = self.nvml.reap()
        if self._all_drained():
            self._close()
            return
        self.closed = False
        now = time.monotonic()
        if self.health.faults and now >= self.again_at and not hangs:
            self.again_at = now + AGAIN_S
            await self._reopen_nvml()
        gpus = self._due(now)
        found = await self._look(gpus) if gpus else {}
        self.leases.clients.end_without_opener(
            {p for seen in found.values() for p in seen.processes}
        )
        slices = Slices()
        for gpu in self.leases.gpus.slurms():
            await slices.rest()
            seen = found.get(gpu.uuid)
            if seen is not None:
                self.busy[gpu.uuid], self.clocks[gpu.uuid] = seen.busy, seen.clock
                self._note_errors(gpu.uuid, seen)
                now_ns, parts = time.monotonic_ns(), self._parts(gpu.uuid, seen.work)
                work = self.meter.read(gpu.uuid, seen.busy, seen.energy_mj, now_ns, parts)
                if work is not None:
                    self.leases.gpus.measured(work)
            if seen is not None or gpu in gpus:
                self._measure_slices(gpu.uuid, seen)
            if not self.leases.tenants.sharing(gpu.uuid):
                await self.watch.look(gpu, {})
            elif seen is not None:
                unconnected = self.watch.unconnected(gpu, seen.processes)
                self.leases.gpus.update(gpu, seen.processes, unconnected)
                await self.watch.look(gpu, seen.processes)

    def _note_errors(self, uuid: str, seen: Seen) -> None:
        if seen.lost_bits is not None:
            first, _ = self.lost.get(uuid, (seen.lost_bits, 0))
            self.lost[uuid] = min(first, seen.lost_bits), seen.lost_bits
        if seen.lost_rows:
            self.lost_rows.add(uuid)
        else:
            self.lost_rows.discard(uuid)
        waiting = self.xids.setdefault(uuid, [])
        waiting.extend(seen.xids[: MOST_XIDS - len(waiting)])

    def take_xids(self, uuid: str) -> tuple[int, ...]:
        """The device's errors since this was last asked."""
        return tuple(self.xids.pop(uuid, ()))

    def lost_bits(self, uuid: str) -> str | None:
        """What is to be said of its memory; None: nothing has been lost while we looked."""
        if uuid in self.lost_rows:
            return "bad rows of its memory could not be replaced"
        first, now = self.lost.get(uuid, (0, 0))
        if now <= first:
            return None
        return f"its memory has had {now - first} errors that were not corrected"

    def _measure_slices(self, uuid: str, seen: Seen | None) -> None:
        busy, work = (None, {}) if seen is None else (seen.busy, seen.work)
        clock = seen.clock if seen is not None and seen.clock is not None else 1.0
        self.leases.slices.measured(uuid, busy, work, clock)
        self.leases.chains.look(uuid)

    def _parts(self, uuid: str, work: Mapping[int, int]) -> tuple[WorkPart, ...]:
        """The work of each tenant that shares the device. work: by pid."""
        found = []
        for tenant in self.leases.tenants.sharing(uuid) if work else []:
            self.leases.tenants.steps.worked(tenant.job_id, uuid, work)
            weight = sum(work.get(pid, 0) for pid in {client.pid for client in tenant.clients})
            if weight:
                found.append(WorkPart(tenant.job_id, weight))
        return tuple(found)

    async def percents(self, uuids: Collection[str]) -> dict[str, int | None]:
        """How busy these devices are now, in percent; None: NVML does not say."""
        found: dict[str, int | None] = dict.fromkeys(uuids)
        try:
            answer = await self.nvml.look(list(uuids))
        except Silent:
            return found
        for uuid in uuids:
            with contextlib.suppress(Unsound):
                found[uuid] = nvml_answers.seen(answer, uuid, 0).busy
        return found

    def _all_drained(self) -> bool:
        return all(
            device.state.drained and not device.state.holders
            for device in self.leases.view.devices()
        )

    def _close(self) -> None:
        if not self.closed:
            self.nvml.close()
            self.busy.clear()
            log.info("NVML is closed: all devices are drained")
        self.closed = True

    def _due(self, now: float) -> list[Gpu]:
        # If one device hangs, perhaps all of them do.
        if now >= self.all_at or self.health.faults or self.health.nvml:
            self.all_at = now + ALL_S
            return self.leases.gpus.slurms()
        return [gpu for gpu in self.leases.gpus.slurms() if self.leases.tenants.sharing(gpu.uuid)]

    async def _look(self, gpus: list[Gpu]) -> dict[str, Seen]:
        """By UUID, what NVML shows of the devices that answer. Faults go to self.health."""
        try:
            answer = await self.nvml.look([gpu.uuid for gpu in gpus])
        except Silent as why:
            self.health.silent(str(why))
            return {}
        found: dict[str, Seen] = {}
        faults: dict[str, str] = {}
        for gpu in gpus:
            try:
                ours = self.leases.gpus.ours
                found[gpu.uuid] = nvml_answers.seen(answer, gpu.uuid, gpu.memory, ours)
            except Unsound as fault:
                faults[gpu.uuid] = str(fault)
        if not found and all(fault == SILENT for fault in faults.values()):
            if len(gpus) < len(self.leases.gpus.slurms()):  # does this device hang, or all of them?
                return await self._look(self.leases.gpus.slurms())
            self.health.silent(OF_NONE)
            return {}
        self.health.answers()
        for gpu in gpus:
            if gpu.uuid in faults:
                self.health.seen(gpu, faults[gpu.uuid])
            else:
                mode = found[gpu.uuid].mode
                self.health.seen(gpu, mode, sure=mode is not None)
        return found

    async def _reopen_nvml(self) -> None:
        """Open NVML again: one that was open while a device was lost may not see it again."""
        self.nvml.close()
        try:
            shown, _ = nvml_answers.each_described(await self.nvml.describe())
        except Silent as why:
            self.health.silent(str(why))
            return
        known = {gpu.uuid for gpu in self.leases.gpus}
        for gpu in shown:
            if gpu.uuid not in known | self.strangers:
                self.strangers.add(gpu.uuid)
                log.warning(
                    "%s (%s, /dev/nvidia%d) is new: restart gpu-leased to share it",
                    *(gpu.name, gpu.uuid, gpu.minor),
                )

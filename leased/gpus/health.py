"""Faults of each device, and of NVML as a whole. Each is logged once.

A device with a fault takes no new jobs; jobs that use it run on. While NVML gives no answer at all,
nothing changes: NVML only measures, and leases do not need it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from leased.gpus.devices import Gpu

log = logging.getLogger("gpu-leased")

ILL, WELL = 2, 10  # polls in succession that show a fault, or none any more


@dataclass
class Health:
    """faults: by UUID, a sentence. nvml: why it says nothing, or None."""

    faults: dict[str, str] = field(default_factory=dict)
    nvml: str | None = None
    # By UUID, polls in succession that contradict the present state.
    doubts: dict[str, int] = field(default_factory=dict)
    heard: int = 0  # answers since NVML was silent

    @property
    def well(self) -> bool:
        """Whether nothing is known or suspected of any device, nor of NVML."""
        return not (self.faults or self.doubts or self.nvml)

    def seen(self, gpu: Gpu, fault: str | None, *, sure: bool = False) -> None:
        """A look at a device. sure: one look is enough."""
        known = self.faults.get(gpu.uuid)
        if fault == known or (fault and known and not sure):
            self.doubts.pop(gpu.uuid, None)
            return
        self.doubts[gpu.uuid] = self.doubts.get(gpu.uuid, 0) + 1
        if self.doubts[gpu.uuid] < (ILL if fault else WELL) and not sure:
            return
        del self.doubts[gpu.uuid]
        if fault is None:
            del self.faults[gpu.uuid]
            log.warning("GPU %d (%s) works again", gpu.index, gpu.uuid)
        else:
            self.faults[gpu.uuid] = fault
            log.error("GPU %d (%s) takes no new jobs: %s", gpu.index, gpu.uuid, fault)

    def silent(self, why: str) -> None:
        """NVML as a whole gives no answer."""
        if self.nvml is None:
            log.error("%s; leases go on, but how much memory the GPUs have in use is unknown", why)
        self.nvml, self.heard = why, 0

    def answers(self) -> None:
        self.heard += 1
        if self.nvml is not None and self.heard >= WELL:
            log.warning("NVML answers again")
            self.nvml = None

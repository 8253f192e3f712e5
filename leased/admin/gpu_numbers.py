"""Gives devices the indices that Slurm gives them; its files may change under the daemon."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from leased.admin.settings import Settings
from leased.base.errors import Refused
from leased.config.config import Config
from leased.gpus.devices import NOT_SLURMS, Gpu, configured
from leased.leasing.leases import Leases
from leased.slurm import slurm_gpus, slurmconf

log = logging.getLogger("gpu-leased")

UNKNOWN = "which GPU Slurm means by an index cannot be told"


@dataclass
class GpuNumbers:
    """Call it before a device is looked up by its index. config: the configuration in force."""

    leases: Leases
    settings: Settings
    config: Callable[[], Config]
    usual: dict[str, int] = field(init=False)  # where Slurm's files say nothing
    looked_at: object = None
    constrained: bool = False  # Slurm lets a job open the devices of its own GPUs alone
    fault: Refused | None = None

    def __post_init__(self) -> None:
        self.usual = {gpu.uuid: gpu.index for gpu in self.leases.gpus}

    def __call__(self) -> None:
        """Learn the indices. Refused: Slurm's files do not tell them."""
        path = slurmconf.find(os.environ, self.config().slurm_conf)
        now = (path, slurm_gpus.seen(path) if path else None)
        if now != self.looked_at:
            self.looked_at = now
            self._read(path)
        if self.fault is not None:
            raise self.fault

    def _read(self, path: Path | None) -> None:
        self.fault = None
        try:
            said = slurm_gpus.read(path) if path else None
            index = self._indices(said) if said else self.usual
            self.constrained = said is not None and said.constrained
            fresh = [
                self._numbered(gpu, index.get(gpu.uuid, NOT_SLURMS)) for gpu in self.leases.gpus
            ]
        except OSError as why:
            self.fault = Refused(f"{UNKNOWN}: {why.filename}: {why.strerror}", "see slurmd's log")
        except Refused as why:
            self.fault = Refused(f"{UNKNOWN}: {why}", why.hint)
        else:
            for gpu in fresh:
                self._take(gpu)
        if self.fault is not None:
            log.error("%s", self.fault.sentence())

    def _indices(self, said: slurm_gpus.Said) -> Mapping[str, int]:
        gpus = list(self.leases.gpus)
        merged = slurm_gpus.merged(said, gpus)
        return slurm_gpus.indices(merged, gpus, constrained=said.constrained)

    def _numbered(self, gpu: Gpu, index: int) -> Gpu:
        if index == gpu.index:
            return gpu
        return self.settings.applied(configured(replace(gpu, index=index), self.config()))

    def _take(self, gpu: Gpu) -> None:
        before = self.leases.gpus[gpu.uuid].index
        if gpu.index == before:
            return
        self.leases.gpus.set(gpu)
        if gpu.index == NOT_SLURMS:
            log.warning(
                "%s (/dev/nvidia%d) is not one of Slurm's GPUs on this node: no job shares it",
                gpu.uuid,
                gpu.minor,
            )
        else:
            log.info("GPU %d of Slurm is %s (/dev/nvidia%d)", gpu.index, gpu.uuid, gpu.minor)

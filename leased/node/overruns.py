"""What this site does about a job that does not release its lease in time (limits.overrun)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from leased.config.config import Config
from leased.leasing.tenant import Tenant
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")


@dataclass
class Overruns:
    """config: the one in force. stands_still: whether a job's processes cannot act now."""

    slurm: Slurm
    config: Callable[[], Config]
    stands_still: Callable[[Tenant], bool]

    def handle(self, tenant: Tenant, forfeit: bool) -> None:
        """The job has overrun; forfeit: for the second time, so it has lost its GPUs."""
        if self.stands_still(tenant):
            log.info(
                "job %s has overrun while it is stopped or suspended: it is not ended for that",
                tenant.job,
            )
            return
        config = self.config()
        if not forfeit and config.overrun in ("signal", "cancel"):
            self.slurm.signal(tenant.job, config.overrun_signal)
        elif forfeit and config.overrun == "cancel":
            self.slurm.cancel(tenant.job)

"""One run of a job on this node, as the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from leased.config import options
from leased.core.policy import PolicyState
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage

LAST_JOB = LAST_UID = 2**32 - 1

Run = tuple[int, float]  # the job's id, and when the run began here


@dataclass
class TenantRecord:
    """One run of a job on this node. A job that is requeued begins another, with the same number.
    While it is open the store alone changes it, in place.

    usage, totals: by device UUID. totals: bytes of memory that the job sees on the device.
    remembered: what the policy remembers of it while it is open; None: nothing.
    parked_by: who parked it, while it is open; None: it is not parked, or it is suspended.
    steps: by their names. Times are seconds since 1970. settled: when it ceased to wait for
    Slurm's accounting. name: the job as squeue shows it; "": by its number. start: when Slurm began
    the run, by slurmctld's clock; 0: unknown. nodes: the names of the job's nodes, where it is on
    several.
    """

    job_id: int
    uid: int
    gang: tuple[str, ...]
    options: str  # as resolved when it began: --gpu-share's grammar, every key
    lock: str
    usage: Mapping[str, Usage]
    totals: Mapping[str, int] = field(default_factory=dict)
    opened: float = 0.0
    closed: float | None = None
    settled: float | None = None
    remembered: PolicyState | None = None
    parked_by: str | None = None
    steps: Mapping[str, StepUsage] = field(default_factory=dict)
    name: str = ""
    start: int = 0
    nodes: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        """As squeue shows it."""
        return self.name or str(self.job_id)

    @property
    def job_class(self) -> str:
        """online, offline or none."""
        return options.understood(self.options)[0].job_class or options.NONE

    @property
    def run(self) -> Run:
        return self.job_id, self.opened


def own(record: TenantRecord) -> TenantRecord:
    """A copy of the record, with usage of its own that can go on counting."""
    return replace(record, usage={uuid: used.copy() for uuid, used in record.usage.items()})

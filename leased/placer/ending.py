"""Jobs that are ending: Slurm gives their GPUs to nobody else until their last process is gone, but
no longer says which they have. So it is remembered from when they ran: otherwise a job would be
allowed to start there too early, and be put off again before it could."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from leased.placer.model import View
from leased.slurm.queue_json import COMPLETING, QueuedJob


class LastGiven:
    """by_job: what each job that runs or ends has been given, by its number and its node."""

    def __init__(self) -> None:
        self.by_job: dict[tuple[int, str], Mapping[int, int | None]] = {}

    def added(self, view: View) -> View:
        """The view with what ending jobs still have."""
        jobs = tuple(self._with_given(job) for job in view.jobs)
        self.by_job = {(j.job_id, j.nodes): j.given for j in jobs if j.active and j.given}
        return replace(view, jobs=jobs)

    def _with_given(self, job: QueuedJob) -> QueuedJob:
        if job.state != COMPLETING or job.given:
            return job
        return replace(job, given=self.by_job.get((job.job_id, job.nodes), {}))

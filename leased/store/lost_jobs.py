"""Jobs that the database has lost go on as they were registered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from leased.base.words import count
from leased.store.contents import Contents
from leased.store.records import TenantRecord
from leased.store.registrations import Registration, Registrations

log = logging.getLogger("gpu-leased")

JOBS_NAMED = 20  # of those that a line of the log is about


def register(contents: Contents, registrations: Registrations, job_id: int) -> None:
    """Bring the file of an open tenant up to date."""
    record = contents.open.get(job_id)
    if record is not None:
        stepds = tuple(process for process, job in contents.stepds.values() if job == job_id)
        registrations.put(Registration(record, stepds))


def compare(
    contents: Contents,
    registrations: Registrations,
    runs: Callable[[int], list[TenantRecord]],
    database: Path,
) -> None:
    """Take over jobs that only their files know, and write the files that are missing.

    runs: the ended runs of a job, as far as they are known.
    """
    kept = registrations.jobs()
    lost = sorted(kept - contents.open.keys())
    taken = [job for job in lost if _take_over(contents, registrations, runs, job)]
    if taken:
        log.warning(
            "%s lacks %s; each goes on as it was registered, and its usage up to now is lost: %s"
            if contents.loaded
            else "%s cannot be read now and lacks %s; each goes on as it was registered, and its "
            "usage up to now is added once it can be read: %s",
            *(database, count(len(taken), "job"), _listed(taken)),
        )
    for job_id in contents.open.keys() - kept:
        register(contents, registrations, job_id)


def _take_over(
    contents: Contents,
    registrations: Registrations,
    runs: Callable[[int], list[TenantRecord]],
    job_id: int,
) -> bool:
    """Take over one job. False: there is nothing to take over."""
    found = registrations.read(job_id)
    if found is None:
        return False
    if any(record.run == found.record.run for record in runs(job_id)):
        registrations.remove(job_id)  # the previous daemon had no time for that
        return False
    contents.begin(found.record)
    for process in found.stepds:
        contents.keep_stepd(process, job_id)
    return True


def _listed(jobs: list[int]) -> str:
    """The jobs' numbers, or the first of them where they are many."""
    words = ", ".join(str(job_id) for job_id in jobs[:JOBS_NAMED])
    return words if len(jobs) <= JOBS_NAMED else f"{words} and others"

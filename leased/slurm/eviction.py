"""Has Slurm run a job again later: it gets SIGTERM, KillWait later SIGKILL, and waits in the queue.

Its Comment says why, beside what stands there. A job that Slurm does not run again (srun, salloc,
--no-requeue), or that has begun anew often enough, is left as it is.
"""

from __future__ import annotations

import asyncio
import logging
import re

from leased.base.words import count
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")

MARK = re.compile(r" ?\[gpu-lease: [^\[\]]*\]")
LONGEST = 1023  # bytes of a comment that slurmctld takes
FIELD = re.compile(r"\b(JobState|Requeue|Restarts|BatchFlag)=(\S+)")
COMMENT = re.compile(r"^ *Comment=(.*?) *$", re.MULTILINE)
AGAIN_S, TIMES = 2.0, 45  # until a requeued job waits, and its begin can be put off


def with_reason(comment: str, reason: str) -> str:
    """The comment with this reason in place of the last one; as it was if there is no room."""
    made = f"{MARK.sub('', comment)} [gpu-lease: {re.sub(r'[^ -Z^-~]', ' ', reason)}]".strip()
    return made if len(made.encode()) <= LONGEST else comment


def why_not(said: dict[str, str], most: int) -> str | None:
    """Why a job of which scontrol says this is not requeued; None: it is. most: restarts."""
    if said.get("JobState") != "RUNNING":
        return f"it is {said.get('JobState', 'not known')}"
    if said.get("BatchFlag") == "0" or said.get("Requeue") != "1":
        return "Slurm does not run it again"
    if int(said.get("Restarts", "0")) >= most:
        return f"it has begun anew {count(int(said['Restarts']), 'time')} already"
    return None


async def evict(slurm: Slurm, job: str, reason: str, pause_s: float, most: int) -> bool:
    """Requeue the job, which begins no sooner than so much later. most: how often jobs begin anew.
    Returns whether that was done; what went wrong is logged."""
    try:
        status, out, err = await slurm.run("scontrol", "show", "job", job)
        if status:
            raise OSError(err.strip())
        why = why_not(dict(FIELD.findall(out)), most)
        if why is not None:
            log.warning("job %s is not evicted, though %s: %s", job, reason, why)
            return False
        found = COMMENT.search(out)
        comment = with_reason(found[1] if found and found[1] != "(null)" else "", reason)
        for command in (("update", f"jobid={job}", f"comment={comment}"), ("requeue", job)):
            status, _, err = await slurm.run("scontrol", *command)
            if status:
                raise OSError(err.strip())
    except (OSError, ValueError) as fault:
        log.error("job %s cannot be evicted: %s", job, fault)
        return False
    log.warning("job %s is evicted: %s", job, reason)
    await _put_off(slurm, job, pause_s)
    return True


async def _put_off(slurm: Slurm, job: str, pause_s: float) -> None:
    when = f"starttime=now+{max(1, round(pause_s))}"
    for _ in range(TIMES):
        await asyncio.sleep(AGAIN_S)
        try:
            status, _, err = await slurm.run("scontrol", "update", f"jobid={job}", when)
        except OSError as fault:
            status, err = 1, str(fault)
        if not status:
            return
    log.error("the begin of job %s cannot be put off: %s", job, err.strip())

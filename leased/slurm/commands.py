"""Slurm's commands as the daemon runs them: ask for jobs' states, signal a job, cancel a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from leased.base import children, words

log = logging.getLogger("gpu-leased")

# The columns that squeue is asked for, and the header that it prints for them.
COLUMNS, HEADER = "%A %T %S %e", ["JOBID", "STATE", "START_TIME", "END_TIME"]
RUNNING = "RUNNING"
# States in which a job has no process on any node.
ABSENT = {
    *("PENDING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("BOOT_FAIL", "DEADLINE", "REVOKED", "SPECIAL_EXIT"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
}


class JobState(NamedTuple):
    """What Slurm says of a job. Times in seconds since 1970; None: unknown. start: of its present
    run. end: when its time limit will be over, if it runs."""

    state: str
    start: float | None = None
    end: float | None = None

    @property
    def absent(self) -> bool:
        """Slurm says that the job has no process on any node."""
        return self.state in ABSENT


class Slurm:
    """env: variables for the commands, such as SLURM_CONF. most: commands in the background."""

    def __init__(self, env: Mapping[str, str], most: int | None = None):
        self.env = env
        self.most = most
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self, *command: str) -> tuple[int, str, str]:
        """A command's exit status, output and errors. OSError: it did not run to its end."""
        done = await children.run(*command, env={"SLURM_TIME_FORMAT": "%s"} | dict(self.env))
        if done.fault:
            raise OSError(done.fault)
        return done.status, done.out, done.err

    async def jobs(self, job_ids: Collection[int]) -> dict[int, JobState]:
        """The states of the jobs that Slurm still knows. OSError: squeue fails, or its answer
        cannot be read."""
        known = ",".join(map(str, job_ids))
        status, out, err = await self.run("squeue", "-t", "all", "-j", known, "-o", COLUMNS)
        # Asked for several jobs, squeue leaves out forgotten ones; asked for one, it fails.
        if status and "Invalid job id" in err:
            return {}
        if status:
            raise OSError(words.line(err) or f"squeue ended with {status}")
        header, *lines = (line.split() for line in out.splitlines() or [""])
        if header != HEADER or any(len(line) != len(HEADER) for line in lines):
            raise OSError("squeue's answer cannot be read")
        return {
            int(job): JobState(state, _time(start), _time(end) if state == RUNNING else None)
            for job, state, start, end in lines
            if job.isdecimal()
        }

    def signal(self, job: str, name: str) -> None:
        """Send the signal to all processes of the job, with its batch script, unless the job is
        suspended; in the background. job: as squeue shows it, since the number of an array's last
        task means all of them here."""
        what = f"signal {name} to job {job}"
        words = (f"--signal={name}", "--full", "--state=RUNNING", job)
        self.start(what, "scancel", *words, say=True)

    def cancel(self, job: str) -> None:
        """Cancel the job, unless it is suspended; in the background. job: as for signal()."""
        self.start(f"cancel job {job}", "scancel", "--state=RUNNING", job, say=True)

    def start(self, what: str, *command: str, say: bool = False) -> None:
        """Run the command in the background. Its failure is logged, and its success if `say`."""
        if self.most is not None and len(self.tasks) >= self.most:
            log.warning("too many Slurm commands run at once, so this one is left out: %s", what)
            return
        task = asyncio.get_running_loop().create_task(self._told(what, command, say))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _told(self, what: str, command: tuple[str, ...], say: bool) -> None:
        try:
            status, _, err = await self.run(*command)
        except OSError as fault:
            status, err = -1, str(fault)
        if status:
            log.error("cannot %s: %s", what, words.line(err) or f"exit status {status}")
        elif say:
            log.warning("done, as limits.overrun says: %s", what)


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None

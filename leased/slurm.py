"""Slurm's own commands, as the daemon runs them: what a job's state is, signal it, cancel it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from leased import children

log = logging.getLogger("gpu-leased")

LONGEST_WORDS = 200  # of a command's errors in the journal
# States in which a job can have processes on a node. One that waits to be run again has none.
PRESENT = {
    *("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"),
    *("STAGE_OUT", "PREEMPTED"),
}


class Slurm:
    """env: what the commands get besides, such as SLURM_CONF. most: in the background at once."""

    def __init__(self, env: Mapping[str, str], most: int | None = None):
        self.env = env
        self.most = most
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self, *command: str) -> tuple[int, str, str]:
        """A command's exit status, output and errors. OSError: nobody to ask."""
        done = await children.run(*command, env=self.env)
        if done.fault:
            raise OSError(done.fault)
        return done.status, done.out, done.err

    async def jobs_over(self, job_ids: Collection[int]) -> set[int]:
        """Those of the jobs that run nowhere, by Slurm's word; none when nobody answers."""
        known = ",".join(map(str, job_ids))
        try:
            status, out, err = await self.run(
                *("squeue", "-h", "-t", "all", "-j", known, "-o", "%A %T")
            )
        except OSError:
            return set()
        # Of several jobs squeue leaves out those that Slurm has forgotten; one it refuses.
        if status and "Invalid job id" not in err:
            return set()
        states = dict(line.split(maxsplit=1) for line in out.splitlines() if " " in line)
        return {job for job in job_ids if states.get(str(job), "GONE") not in PRESENT}

    def signal(self, job_id: int, name: str) -> None:
        """Send the signal to all processes of the job, the batch script too, unless it is
        suspended; in the background."""
        what = f"signal {name} to job {job_id}"
        words = (f"--signal={name}", "--full", "--state=RUNNING", str(job_id))
        self.start(what, "scancel", *words, say=True)

    def cancel(self, job_id: int) -> None:
        """Cancel the job, unless it is suspended; in the background."""
        self.start(f"cancel job {job_id}", "scancel", "--state=RUNNING", str(job_id), say=True)

    def start(self, what: str, *command: str, say: bool = False) -> None:
        """Run the command in the background; its failure is logged, its success if `say`."""
        if self.most is not None and len(self.tasks) >= self.most:
            log.warning("too many commands of Slurm's at once, left out: %s", what)
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
            log.error("cannot %s: %s", what, err.strip()[:LONGEST_WORDS] or f"exit status {status}")
        elif say:
            log.warning("done by this site's rules: %s", what)

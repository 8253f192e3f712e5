"""Slurm's own commands, as the daemon runs them: what a job's state is, signal it, cancel it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping

log = logging.getLogger("gpu-leased")

PATIENCE_S = 30.0
# States in which a job can have processes on a node. One that waits to be run again has none.
PRESENT = {
    *("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"),
    *("STAGE_OUT", "PREEMPTED"),
}
STATE = re.compile(r"\bJobState=(\w+)")


class Slurm:
    """env: what the commands get besides, such as SLURM_CONF."""

    def __init__(self, env: Mapping[str, str]):
        self.env = env
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self, *command: str) -> tuple[int, str, str]:
        """A command's exit status, output and errors. OSError, TimeoutError: nobody to ask."""
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(os.environ) | dict(self.env),
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(), PATIENCE_S)
        except BaseException:
            if child.returncode is None:
                child.kill()
                await child.wait()
            raise
        return child.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")

    async def job_is_over(self, job_id: int) -> bool:
        """Whether Slurm says that it runs nowhere; False when nobody answers."""
        try:
            _, out, err = await self.run("scontrol", "show", "job", "-o", str(job_id))
        except (OSError, TimeoutError):
            return False
        state = STATE.search(out)
        return state[1] not in PRESENT if state else "Invalid job id" in err

    def signal(self, job_id: int, name: str) -> None:
        """Send the signal to all processes of the job, the batch script too; in the background."""
        self._start(
            f"signal {name} to job {job_id}", "scancel", f"--signal={name}", "--full", job_id
        )

    def cancel(self, job_id: int) -> None:
        """Cancel the job; in the background."""
        self._start(f"cancel job {job_id}", "scancel", job_id)

    def _start(self, what: str, *command: object) -> None:
        task = asyncio.get_running_loop().create_task(self._told(what, *map(str, command)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _told(self, what: str, *command: str) -> None:
        try:
            status, _, err = await self.run(*command)
        except (OSError, TimeoutError) as fault:
            status, err = -1, str(fault)
        if status:
            log.error("cannot %s: %s", what, err.strip() or f"exit status {status}")
        else:
            log.warning("done by this site's rules: %s", what)

"""What the placer asks of slurmctld and tells it. It changes jobs by Slurm's own commands.

What users write is always a part of one argument behind its key: never a command's, never a
shell's.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping

from leased.base import children, words
from leased.placer.model import NOW, Update, View
from leased.slurm.asking import Asking, Silent
from leased.slurm.json_answers import Read

CHANGE_S = 30.0
PARTITIONS = ("sinfo", "-h", "-a", "-o", "%R %a")  # of all releases, so not as JSON
CLOSED = {"down", "inactive", "inact"}  # drained ones start the jobs that they have
PARTITIONS_S = 10.0  # so often it is asked which are closed
UNREACHED = "contact slurm controller"  # in what scontrol says


class Failed(Exception):
    """slurmctld refuses a change; in its words."""


class Link:
    """env: variables of the commands, such as SLURM_CONF."""

    def __init__(self, env: Mapping[str, str]):
        self.slurmctld = Asking(env)
        self.env = self.slurmctld.env
        self.closed: frozenset[str] = frozenset()
        self.closed_due = 0.0  # monotonic; when to ask again which partitions are closed

    def look(self) -> tuple[View, Read]:
        """What Slurm has; and of what it says, what had to be left out. Silent."""
        queue = self.slurmctld.jobs()
        there = self.slurmctld.nodes()
        self._ask_partitions()
        view = View(int(time.time()), queue.found, there.found, closed=self.closed)
        left_out = queue.not_understood + there.not_understood
        return view, Read((), left_out, queue.too_long)

    def _ask_partitions(self) -> None:
        if time.monotonic() < self.closed_due:
            return
        rows = [line.split() for line in self.slurmctld.ask(PARTITIONS).out.splitlines()]
        self.closed = frozenset(row[0] for row in rows if len(row) == 2 and row[1] in CLOSED)
        self.closed_due = time.monotonic() + PARTITIONS_S

    def change(self, update: Update) -> None:
        """Change a job. Failed: slurmctld refuses. Silent: it does not answer."""
        try:
            done = children.run_and_wait(*command(update), env=self.env, patience_s=CHANGE_S)
        except OSError as fault:
            if fault.errno == errno.E2BIG:  # so many tasks of an array, one by one
                raise Failed("its tasks are too many for one command") from None
            raise Silent(f"scontrol cannot be run: {fault.strerror}") from None
        if done.fault:
            raise Silent(f"scontrol was ended: {done.fault}")
        if done.status:
            told = words.line(done.err) or words.line(done.out) or f"exit status {done.status}"
            if UNREACHED in told:
                raise Silent(f"scontrol fails: {told}")
            raise Failed(told)


def command(update: Update) -> list[str]:
    """The command that makes the change."""
    start: str | None = None
    if update.start is not None:
        at = time.gmtime(update.start)
        start = "now" if update.start == NOW else time.strftime("%Y-%m-%dT%H:%M:%S", at)
    said = {"jobid": update.job, "starttime": start, "reqnodelist": update.node}
    said |= {"comment": update.comment, "admincomment": update.admin_comment}
    return ["scontrol", "update", *(f"{k}={v}" for k, v in said.items() if v is not None)]

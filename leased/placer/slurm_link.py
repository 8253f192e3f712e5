"""Asks slurmctld for jobs and nodes, and changes jobs, by running Slurm's own commands.

What users write is always a part of one argument behind its key: never a command's, never a
shell's.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping, Sequence

from leased.base import children
from leased.placer.model import NOW, Update, View
from leased.slurm import nodes_json, queue_json
from leased.slurm.json_answers import Entries, Read, Unreadable

ASK_S = 60.0
CHANGE_S = 30.0
SQUEUE, SINFO = ("squeue", "--json"), ("sinfo", "--json")
SCONTROL = ("scontrol", "show", "nodes", "--json")  # where sinfo prints groups of nodes
PARTITIONS = ("sinfo", "-h", "-a", "-o", "%R %a")  # of all releases, so not as JSON
CLOSED = {"down", "inactive", "inact"}  # drained ones start the jobs that they have
PARTITIONS_S = 10.0  # so often it is asked which are closed
UNREACHED = "contact slurm controller"  # in what scontrol says
WORDS = 200  # characters of what a command says


class Silent(Exception):
    """slurmctld does not answer, or says what cannot be understood; in a sentence."""


class Failed(Exception):
    """slurmctld refuses a change; in its words."""


class Link:
    """env: variables of the commands, such as SLURM_CONF."""

    def __init__(self, env: Mapping[str, str]):
        # Times are given in UTC, and arrays in full.
        self.env = dict(env) | {"TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
        self.nodes_question: Sequence[str] = SINFO
        self.closed: frozenset[str] = frozenset()
        self.closed_due = 0.0  # monotonic; when to ask again which partitions are closed

    def look(self) -> tuple[View, Read]:
        """What Slurm has; and of what it says, what had to be left out. Silent."""
        queue = self._read(SQUEUE, queue_json.Jobs())
        there = self.nodes()
        self._ask_partitions()
        view = View(int(time.time()), queue.found, there.found, closed=self.closed)
        left_out = queue.not_understood + there.not_understood
        return view, Read((), left_out, queue.too_long)

    def _ask_partitions(self) -> None:
        if time.monotonic() < self.closed_due:
            return
        rows = [line.split() for line in self._ask(PARTITIONS).out.splitlines()]
        self.closed = frozenset(row[0] for row in rows if len(row) == 2 and row[1] in CLOSED)
        self.closed_due = time.monotonic() + PARTITIONS_S

    def nodes(self) -> Read:
        """The nodes whose GPUs jobs share. Silent."""
        try:
            return self._read(self.nodes_question, nodes_json.Nodes())
        except nodes_json.Grouped:
            self.nodes_question = SCONTROL
            return self.nodes()

    def _read(self, question: Sequence[str], entries: Entries) -> Read:
        """What a command prints as JSON. Silent; Grouped: it prints groups of nodes."""
        try:
            self._ask(question, entries.feed)
            return entries.end()
        except nodes_json.Grouped:
            raise
        except Unreadable as fault:
            raise Silent(f"what Slurm says cannot be read: {fault}") from None

    def _ask(self, question: Sequence[str], take: children.Take | None = None) -> children.Done:
        """take: gets what the command prints. Silent: it fails; or what `take` raises."""
        command = question[0]
        try:
            done = children.run_and_wait(*question, env=self.env, patience_s=ASK_S, take=take)
        except OSError as fault:
            raise Silent(f"{command} cannot be run: {fault.strerror}") from None
        if done.fault or done.status:
            raise Silent(f"{command} fails: {done.fault or words(done.err) or done.status}")
        return done

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
            told = words(done.err) or words(done.out) or f"exit status {done.status}"
            if UNREACHED in told:
                raise Silent(f"scontrol fails: {told}")
            raise Failed(told)


def command(update: Update) -> list[str]:
    """The command that makes the change."""
    made = ["scontrol", "update", f"jobid={update.job}"]
    if update.start is not None:
        made.append(f"starttime={_time(update.start)}")
    if update.node is not None:
        made.append(f"reqnodelist={update.node}")
    if update.comment is not None:
        made.append(f"comment={update.comment}")
    if update.admin_comment is not None:
        made.append(f"admincomment={update.admin_comment}")
    return made


def _time(start: int) -> str:
    return "now" if start == NOW else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start))


def words(err: str) -> str:
    """What a command wrote, as one line for the journal."""
    line = " ".join(err.split())[:WORDS]
    return "".join(c if c.isprintable() else "?" for c in line)

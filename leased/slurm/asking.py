"""Asks slurmctld for all jobs and nodes: through pyslurm where that suits, and by Slurm's commands.

Callers do not know which: the answers are the same (tests/slurm/test_asking.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from leased.base import children, words
from leased.slurm import by_pyslurm, nodes_json, queue_json, slurmconf
from leased.slurm.json_answers import Entries, Read, Unreadable

log = logging.getLogger("gpu-lease-placer")  # which asks all the time

ASK_S = 60.0
SQUEUE, SINFO = ("squeue", "--json"), ("sinfo", "--json")
SCONTROL = ("scontrol", "show", "nodes", "--json")  # where sinfo prints groups of nodes
PYSLURM = "from leased.slurm.by_pyslurm import main; main(sys.argv[1])"
AGAIN_S = 600.0  # so long Slurm's commands are asked after pyslurm has failed where they did not


class Silent(Exception):
    """slurmctld does not answer, or says what cannot be understood; in a sentence."""


class Asking:
    """env: variables of the commands, such as SLURM_CONF. why: why pyslurm is not asked; "": it
    is; None: that has not been looked at yet."""

    def __init__(self, env: Mapping[str, str], why: str | None = None):
        # Times are given in UTC, and arrays in full.
        self.env = dict(env) | {"TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
        self.nodes_question: Sequence[str] = SINFO
        self.pyslurm_due = 0.0  # monotonic; when it may be asked again
        self._why = why

    @property
    def why_commands(self) -> str:
        """Why Slurm's commands are asked; "": pyslurm is."""
        if self._why is None:
            self._why = by_pyslurm.why_not(slurmconf.version(self.env))
        return self._why

    def jobs(self) -> Read:
        """Silent."""
        return self._either("jobs", queue_json.Jobs, lambda: self._read(SQUEUE, queue_json.Jobs()))

    def nodes(self) -> Read:
        """The nodes whose GPUs jobs share. Silent."""
        return self._either("nodes", nodes_json.Nodes, self._nodes_by_commands)

    def _nodes_by_commands(self) -> Read:
        try:
            return self._read(self.nodes_question, nodes_json.Nodes())
        except nodes_json.Grouped:
            self.nodes_question = SCONTROL
            return self._nodes_by_commands()

    def _either(
        self, what: str, entries: Callable[[], Entries], by_commands: Callable[[], Read]
    ) -> Read:
        if self.why_commands or time.monotonic() < self.pyslurm_due:
            return by_commands()
        try:
            return self._read(children.python(PYSLURM, what), entries())
        except Silent as fault:
            found = by_commands()  # where these fail too, it is not pyslurm's fault
            self.pyslurm_due = time.monotonic() + AGAIN_S
            log.warning(
                "pyslurm gives no answer, so Slurm's commands are asked for %d minutes: %s",
                *(AGAIN_S // 60, fault),
            )
            return found

    def _read(self, question: Sequence[str], entries: Entries) -> Read:
        """What a command prints as JSON. Silent; Grouped: it prints groups of nodes."""
        try:
            self.ask(question, entries.feed)
            return entries.end()
        except nodes_json.Grouped:
            raise
        except Unreadable as fault:
            raise Silent(f"what Slurm says cannot be read: {fault}") from None

    def ask(self, question: Sequence[str], take: children.Take | None = None) -> children.Done:
        """take: gets what the command prints. Silent: it fails; or what `take` raises."""
        command = question[0]
        try:
            done = children.run_and_wait(*question, env=self.env, patience_s=ASK_S, take=take)
        except OSError as fault:
            raise Silent(f"{command} cannot be run: {fault.strerror}") from None
        if done.fault or done.status:
            raise Silent(f"{command} fails: {done.fault or words.line(done.err) or done.status}")
        return done

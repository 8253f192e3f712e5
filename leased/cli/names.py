"""Names of users and jobs for tables. A name that cannot be found out is left empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from leased.base.words import user_of
from leased.cli.squeue import Ask, Question

AGAIN_S = 30.0  # after a question that nobody answered


@dataclass
class Names:
    """Each name is asked for once. The name of a job that Slurm does not know is empty.

    patient: learn() waits for the answer, since what is shown is shown once. Else names are there
    a little later. clock: seconds, growing.
    """

    ask: Ask
    users: dict[int, str] = field(default_factory=dict)
    patient: bool = False
    clock: Callable[[], float] = time.monotonic
    jobs: dict[int, str] = field(default_factory=dict)
    _question: Question | None = None
    _again_at: float = 0.0

    def learn(self, jobs: Iterable[int]) -> None:
        """Ask for the names of new jobs, and take over the answers that have come."""
        there = set(jobs)
        self._take_answer()
        self.jobs = {job: name for job, name in self.jobs.items() if job in there}
        new = sorted(there - self.jobs.keys())
        if new and self._question is None and self.clock() >= self._again_at:
            self._question = Question(self.ask, new)
            if self.patient:
                self._question.wait()
                self._take_answer()

    def _take_answer(self) -> None:
        if self._question is None or not self._question.over:
            return
        asked, self._question = self._question, None
        if asked.names is None:
            self._again_at = self.clock() + AGAIN_S
        else:
            self.jobs |= dict.fromkeys(asked.jobs, "") | asked.names

    def close(self) -> None:
        """Stop asking."""
        if self._question is not None:
            self._question.stop()
            self._question = None

    def job(self, number: int) -> str:
        return self.jobs.get(number, "")

    def user(self, uid: int) -> str:
        """Its number where this node has no name for it."""
        if uid not in self.users:
            self.users[uid] = user_of(uid) or str(uid)
        return self.users[uid]

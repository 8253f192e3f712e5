"""Names of users and jobs for tables: what cannot be found out is left empty, and nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from leased.api.client import user_of
from leased.base import children

PATIENCE_S = 2.0
MOST = 1 << 20  # bytes of squeue's answer


def ask_squeue(jobs: list[int]) -> dict[int, str]:
    """Names of jobs by number, of those that Slurm still knows; {}: it does not answer."""
    listed = ",".join(map(str, jobs))
    command = ["squeue", "--noheader", "--format=%A|%j", f"--jobs={listed}"]
    env = {"LC_ALL": "C.UTF-8"}
    try:
        done = children.run_and_wait(*command, env=env, patience_s=PATIENCE_S, most=MOST)
    except OSError:
        return {}
    found = {}
    for line in done.out.splitlines():
        number, _, name = line.partition("|")
        if number.isdecimal():
            found[int(number)] = "".join(c if c.isprintable() else "?" for c in name)
    return found


@dataclass
class Names:
    """Each is asked for once; of a job that Slurm does not know the name is empty."""

    squeue: Callable[[list[int]], dict[int, str]] = ask_squeue
    jobs: dict[int, str] = field(default_factory=dict)
    users: dict[int, str] = field(default_factory=dict)

    def learn(self, jobs: Iterable[int]) -> None:
        """Names of those that are new."""
        there = set(jobs)
        self.jobs = {job: name for job, name in self.jobs.items() if job in there}
        new = sorted(there - self.jobs.keys())
        if new:
            self.jobs |= dict.fromkeys(new, "") | self.squeue(new)

    def job(self, number: int) -> str:
        return self.jobs.get(number, "")

    def user(self, uid: int) -> str:
        """Its number where this node has no name for it."""
        if uid not in self.users:
            self.users[uid] = user_of(uid) or str(uid)
        return self.users[uid]

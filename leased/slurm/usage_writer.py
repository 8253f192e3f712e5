"""Bring the usage of ended jobs into Slurm's accounting: when, how many at once, for how long.

One child process writes many records. What Slurm does not take is tried again after pauses that
grow: each job by itself while slurmdbd has not heard of its end, and all jobs together while
slurmdbd does not answer. The jobs that wait are bounded in number and time. What is given up is
logged first, word for word, and stays in usage.db like what was written.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from leased.api import answers
from leased.base import children
from leased.base.words import count
from leased.slurm.accounting import comment
from leased.slurm.accounting_child import encode
from leased.store.records import Run, TenantRecord
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

FIRST_S, LAST_S = 0.5, 600.0  # pauses: the first, and the longest
JOBS_AT_ONCE = 100
PATIENCE_S, PATIENCE_EACH_S = 30.0, 1.0  # for the child, and more for each job
WAITING_MOST = 10_000  # runs
WAITING_WARN = 8_000
GIVEN_UP_PART = 100  # of those that may wait, such a part is given up at once
WAITING_S = 30 * 86400.0
SAY_AGAIN_S = 3600.0
LONG_S = 60.0  # what waits for longer is named
NAMED_MOST = 8
CHILD = "from leased.slurm.accounting_child import main; raise SystemExit(main())"


@dataclass
class Answers:
    """What became of a batch. done: for each run "", or why it is not written. fault: what the
    child itself failed at, so that some runs may lack an answer; "": nothing."""

    done: dict[Run, str] = field(default_factory=dict)
    fault: str = ""


async def write(
    jobs: list[list[TenantRecord]], env: Mapping[str, str], indices: Mapping[str, int], node: str
) -> Answers:
    """Have a child write the runs of some jobs. indices: Slurm's indices of the devices, by UUID.
    node: what Slurm calls this one. Raises nothing."""
    try:
        done = await children.run(
            *children.python(CHILD),
            env=env,
            stdin="".join(encode(runs, indices, node) + "\n" for runs in jobs).encode(),
            patience_s=PATIENCE_S + PATIENCE_EACH_S * len(jobs),
        )
    except OSError as fault:
        return Answers(fault=f"the writer cannot be started: {fault}")
    answers = Answers(fault=done.fault and f"the writer was ended: {done.fault}")
    for line in done.out.splitlines():
        try:
            said = json.loads(line)
            job_id, opened = said["run"]
            answers.done[int(job_id), float(opened)] = "" if said["done"] else str(said["why"])
        except (ValueError, TypeError, KeyError):
            log.debug("a line of the writer cannot be read: %r", line[:200])
    if done.status and not answers.fault:
        words = done.err.strip().splitlines() or [f"the writer ended with {done.status}"]
        answers.fault = words[-1]
    return answers


Write = Callable[
    [list[list[TenantRecord]], Mapping[str, str], Mapping[str, int], str], Awaitable[Answers]
]


@dataclass
class Pause:
    """at: when something is tried again. next_s: the pause after that. why: what kept it from being
    done; named: it has been logged."""

    at: float = 0.0
    next_s: float = FIRST_S
    why: str = ""
    named: bool = False

    def grow(self, now: float) -> None:
        self.at, self.next_s = now + self.next_s, min(2 * self.next_s, LAST_S)


NOT_TRIED = Pause(why="it is being written")


class UsageWriter:
    """Carries what the store has of ended jobs to Slurm's accounting.

    env: variables for Slurm's programs. indices: Slurm's indices of the devices, by UUID. node:
    what Slurm calls this one. clock: seconds that only grow. today: seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        env: Callable[[], Mapping[str, str]],
        indices: Callable[[], Mapping[str, int]],
        node: Callable[[], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
        write: Write = write,
    ):
        self.store = store
        self.env = env
        self.indices = indices
        self.node = node
        self.clock = clock
        self.today = today
        self.write = write
        self.more = asyncio.Event()  # a job has ended
        self.pauses: dict[Run, Pause] = {}
        self.down: Pause | None = None  # while nothing can be written at all
        self.probes = 0
        self.suspect: TenantRecord | None = None  # the first run of a batch at which a child ended
        self.said: tuple[str, float] = ("", 0.0)  # the fault that was logged last, and when
        self.warned = False
        self.room = 0  # how many more runs may wait, if none has been written since the last look

    def usage_added(self) -> None:
        """A job has ended, and its usage is in the store. While nothing can be written nobody else
        looks for minutes."""
        self.room -= 1
        if self.room < 0:
            self._bounded(self.store.unsettled())
        self.more.set()

    async def write_usage(self) -> None:
        """Write what waits, and try again what fails. This never returns."""
        while True:
            self.more.clear()
            wait_s = await self.step()
            if self.down is not None and wait_s is not None:
                # Jobs that end meanwhile are looked at, and counted, at the next try: each look is
                # at all that waits.
                await asyncio.sleep(wait_s)
            elif wait_s is None or wait_s > 0:
                waiter = asyncio.ensure_future(self.more.wait())
                await asyncio.wait([waiter], timeout=wait_s)
                waiter.cancel()

    async def step(self) -> float | None:
        """Try what is due. Returns seconds until more is due; None: a job must end first."""
        waiting = self._bounded(self.store.unsettled())
        known = {record.run for record in waiting}
        self.pauses = {run: pause for run, pause in self.pauses.items() if run in known}
        if not waiting:
            return None
        now = self.clock()
        if self.down is not None and self.down.at > now:
            return self.down.at - now
        due = [
            run for run in waiting if run.run not in self.pauses or self.pauses[run.run].at <= now
        ]
        if due:
            await self._write(due)
        return self._next(self.store.unsettled())

    def _next(self, waiting: list[TenantRecord]) -> float | None:
        now = self.clock()
        if self.down is not None:
            return max(0.0, self.down.at - now)
        never = Pause()
        return min(
            (max(0.0, self.pauses.get(r.run, never).at - now) for r in waiting), default=None
        )

    async def _write(self, due: list[TenantRecord]) -> None:
        jobs = self._chosen(list(dict.fromkeys(record.job_id for record in due)))
        asked = [record for record in due if record.job_id in jobs]
        runs = [self.store.runs(job_id) for job_id in jobs]
        several = any(run.nodes for each in runs for run in each)
        node = self.node() if several else ""
        told = await self.write(runs, self.env(), self.indices(), node)
        now = self.clock()
        written = [record for record in asked if told.done.get(record.run) == ""]
        if written:
            self.store.settle([record.run for record in written])
        for record in written:
            log.info("usage of job %s is in Slurm's accounting", record.job)
        for record in asked:
            if told.done.get(record.run):
                self._later(record, told.done[record.run], now)
        lacking = [record for record in asked if record.run not in told.done]
        if lacking and not told.done:
            self._nobody(told.fault or "the writer said nothing", now, lacking[0])
            return
        self._somebody(now)
        if lacking:  # the child ended with this one, maybe because of it
            self._later(lacking[0], told.fault or "the writer left it out", now)

    def _later(self, record: TenantRecord, why: str, now: float) -> None:
        pause = self.pauses.setdefault(record.run, Pause())
        pause.why = why
        if not pause.named and self._waits_s(record) > LONG_S:
            pause.named = True
            log.warning("usage of job %s is not in Slurm's accounting yet: %s", record.job, why)
        pause.grow(now)

    def _waits_s(self, record: TenantRecord) -> float:
        return self.today() - (record.closed or 0.0)

    def waiting(self) -> answers.UsageWaiting:
        """The usage that has waited for long, for the answer to status."""
        found = [run for run in self.store.unsettled() if self._waits_s(run) > LONG_S]
        return {
            "runs": len(found),
            "first": [
                {
                    "job_id": run.job_id,
                    "job": run.job,
                    "since_s": round(self._waits_s(run), 1),
                    "why": self.said[0] or self.pauses.get(run.run, NOT_TRIED).why,
                }
                for run in found[:NAMED_MOST]
            ],
        }

    def _chosen(self, jobs: list[int]) -> list[int]:
        """The jobs of the next child. While slurmdbd does not answer it is one job, another one
        each time, since the child may have ended because of a certain job."""
        if self.down is None:
            return jobs[:JOBS_AT_ONCE]
        self.probes += 1
        return [jobs[self.probes % len(jobs)]]

    def _nobody(self, why: str, now: float, first: TenantRecord) -> None:
        """Nothing can be written at all. That is logged once, and again where it lasts."""
        if self.down is None:
            self.down, self.suspect = Pause(), first
        self.down.grow(now)
        if why != self.said[0] or now - self.said[1] >= SAY_AGAIN_S:
            jobs = count(len(self.store.unsettled()), "job")
            log.warning("usage of %s is not in Slurm's accounting yet: %s", jobs, why)
            self.said = why, now

    def _somebody(self, now: float) -> None:
        if self.down is not None:
            log.warning("Slurm's accounting takes usage again")
            if self.suspect is not None:
                self.pauses.setdefault(self.suspect.run, Pause()).grow(now)
        self.down, self.suspect, self.said = None, None, ("", 0.0)

    def _bounded(self, waiting: list[TenantRecord]) -> list[TenantRecord]:
        """The runs that still wait, when those that are too old or too many are given up."""
        if len(waiting) < WAITING_WARN:
            self.warned = False
        elif not self.warned:
            self.warned = True
            log.error(
                "usage of %s waits for Slurm's accounting (%s); beyond %d the oldest will be "
                "given up: see slurmdbd, and gpu-leasectl check",
                *(count(len(waiting), "job"), self.said[0] or "it is being written", WAITING_MOST),
            )
        first = max(0, len(waiting) - WAITING_MOST)
        if first:  # some more, so that the next job's end need not look at all again
            first += WAITING_MOST // GIVEN_UP_PART
        before = self.today() - WAITING_S
        while first < len(waiting) and (waiting[first].closed or 0) < before:
            first += 1
        for record in waiting[:first]:
            log.error(
                "usage of job %s is given up, since Slurm's accounting did not take it: %s",
                *(record.job, comment([record], self.indices())),
            )
        if first:
            self.store.settle([record.run for record in waiting[:first]])
        self.room = WAITING_MOST - len(waiting[first:])
        return waiting[first:]

"""Makes a trace of a record: the GPUs and jobs that a real daemon has seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from leased import policy
from leased.base.errors import Refused
from leased.base.words import count, size
from leased.sim import bursts
from leased.sim.history import History, Run
from leased.sim.jobs import GIB, Gpu, Job, Setting, Trace
from leased.sim.run import Ended, Result
from leased.sim.trace import MOST_JOBS, TOUCHES_BYTES_S
from leased.usage.usage import Usage

RECORDED = "recorded"  # what a table calls what really happened


@dataclass(frozen=True)
class Observed:
    """trace: what could be simulated instead. policy: the GPUs' own. real: what became of the
    jobs. notes: sentences about what the trace leaves out or guesses."""

    trace: Trace
    policy: str
    real: Result | None
    notes: tuple[str, ...]


def of(history: History) -> Observed:
    """Refused: no job of the record has used a GPU."""
    found = bursts.of_all(history)
    used = [
        (run, pairs) for run, pairs in zip(history.runs, found) if any(work for work, _ in pairs)
    ]
    if not used:
        raise Refused(
            "no job has used a GPU in this record", "take one that was written while jobs ran"
        )
    if len(used) > MOST_JOBS:
        raise Refused(f"the record has {len(used)} jobs", f"take one of at most {MOST_JOBS}")
    begin = min(run.opened for run, _ in used)
    names = _names([run.name for run, _ in used])
    jobs = [
        _job(history, run, pairs, name, bursts.rounded(run.opened - begin))
        for (run, pairs), name in zip(used, names)
    ]
    notes = list(_notes(history, [run for run, _ in used]))
    gpu = _gpu(history, jobs, notes)
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].submit)
    real = [_ended(used[n][0], jobs[n], begin) for n in order]
    chosen = Setting(RECORDED)
    return Observed(
        Trace((gpu,) * len(history.devices), tuple(jobs[n] for n in order)),
        _policy(history, notes),
        Result(chosen, tuple(real), 0),
        tuple(notes),
    )


def _names(jobs: Sequence[str]) -> list[str]:
    """A job that was requeued is there more than once."""
    sofar: dict[str, int] = {}
    found = []
    for job in jobs:
        sofar[job] = sofar.get(job, 0) + 1
        again = f" run {sofar[job]}" if sofar[job] > 1 else ""
        found.append(f"job {job}{again}")
    return found


def _job(
    history: History, run: Run, pairs: tuple[tuple[int, int], ...], name: str, submit: int
) -> Job:
    devices = history.arbiter.devices
    first = devices[run.gang[0]]
    lock, quantum = first.lock or run.tenant.lock, first.quantum_ns or run.tenant.quantum_ns
    drains = [
        hold.until - hold.revoked
        for hold in run.holds
        if hold.revoked is not None and hold.until < run.closed
    ]
    return Job(
        name,
        max((most for uuid in run.gang for _, most in run.memory.get(uuid, ())), default=0),
        pairs,
        tuple(sorted(history.devices.index(uuid) for uuid in run.gang)),
        submit,
        lock,
        quantum,
        run.tenant.swaps,
        bursts.rounded(median(drains)) if drains else 0,
        TOUCHES_BYTES_S,
    )


def _gpu(history: History, jobs: Sequence[Job], notes: list[str]) -> Gpu:
    """One GPU that stands for all of the node. notes: a remark is added where they differ."""
    rooms = {uuid: series[-1][1] for uuid, series in history.rooms.items()}
    if len(set(rooms.values())) > 1:
        notes.append("the GPUs differ in memory: all are simulated with that of the smallest")
    room, most = min(rooms.values()), max(job.memory for job in jobs)
    if most > room:
        notes.append(
            f"a job had {size(most)} and a GPU has {size(room)} for jobs: it is simulated with "
            f"{size(most)}"
        )
    first = history.residency(history.devices[0])
    return Gpu(max(room, most), _speed(first.link.bytes_s), _speed(first.paging.bytes_s))


def _speed(bytes_s: float) -> float:
    """As the trace writes it: with three digits behind the point."""
    return max(0.001, round(bytes_s / GIB, 3)) * GIB


def _policy(history: History, notes: list[str]) -> str:
    found = history.policies
    if len(found) > 1:
        notes.append(
            f"the GPUs have the policies {', '.join(found)}: all are simulated with {found[0]}"
        )
    return found[0] if found else policy.DEFAULT


def _notes(history: History, used: Sequence[Run]) -> Iterable[str]:
    going = [run.job for run in used if not run.over]
    if going:
        yield (
            f"{count(len(going), 'job')} had not ended at the end of the record: simulated up to "
            "there"
        )
    lacking = len(history.runs) - len(used)
    if lacking:
        are = "is" if lacking == 1 else "are"
        yield f"{count(lacking, 'job')} used no GPU and {are} left out"
    for what, times in history.not_simulated.items():
        yield f"{what} ({count(times, 'time')}), which is not simulated"
    if not history.work:
        yield "NVML did not say how busy the GPUs were: leases in which nobody waited count as busy"


def _ended(run: Run, job: Job, begin: int) -> Ended:
    """What became of the job."""
    moving = sum(hold.begun - hold.since for hold in run.holds)
    waiting = sum(wait.until - wait.since for wait in run.waits)
    used = run.usage or {"": Usage()}
    return Ended(
        job.name,
        *(run.opened - begin, run.opened - begin, run.closed - begin, job.alone_ns),
        waiting + moving,
        moving,
        sum(usage.handoffs for usage in used.values()),
        sum(usage.moved_bytes for usage in used.values()),
    )

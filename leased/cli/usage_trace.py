"""Makes a trace of the sums in Slurm's accounting. What the sums do not tell is guessed, and the
notes say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leased import policy
from leased.base.errors import Refused
from leased.base.words import size
from leased.sim.jobs import LOCKS, MS, Gpu, Job, S, Setting, Trace
from leased.sim.observed import RECORDED, Observed
from leased.sim.run import Ended, Result
from leased.sim.trace import MOST_JOBS, TOUCHES_BYTES_S, cycles
from leased.slurm.sacct import Row
from leased.slurm.usage_record import Run

GUESSED = (
    "Slurm's accounting has only sums: a job's work is cut into as many bursts as it had handoffs",
    "tq, kind of memory and speed of the link are unknown: 30 s, swap and 10 GiB/s are assumed",
)


def of(rows: Sequence[Row], gpu_memory: int, node: str | None = None) -> Observed:
    """gpu_memory: bytes that jobs can have of a GPU together. node: of several.

    Refused: no job there has a record, or they are of several nodes and none was named.
    """
    used = [(row, row.usage) for row in rows if row.usage is not None and row.usage.gpus]
    found = [(row, run) for row, run in used if not run.nodes]  # the simulator has one node
    nodes = sorted({row.node for row, _ in found})
    if node is None and len(nodes) > 1:
        raise Refused(
            f"these jobs ran on {len(nodes)} nodes", f"name one with --node: {', '.join(nodes[:8])}"
        )
    found = [(row, run) for row, run in found if node in (None, row.node) and _work_ns(run) > 0]
    if not found:
        words = f"no job{f' of {node}' if node else ''} with a record has used a GPU since then"
        raise Refused(words, "choose an earlier time, or see gpu-leasectl report")
    if len(found) > MOST_JOBS:
        raise Refused(f"these are {len(found)} jobs", f"choose a time with at most {MOST_JOBS}")
    begin = min(run.since for row, run in found)
    places = _places([run for _, run in found])
    jobs = [_job(row, run, places, begin) for row, run in found]
    most = max(job.memory for job in jobs)
    if most > gpu_memory:
        raise Refused(
            f"a job had {size(most)} of a GPU, which is more than --gpu-memory {size(gpu_memory)}",
            f'write for example --gpu-memory "{most}"',
        )
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].submit)
    count = max(max(job.gpus) for job in jobs) + 1
    real = tuple(_ended(found[n][1], jobs[n]) for n in order)
    return Observed(
        Trace((Gpu(gpu_memory),) * count, tuple(jobs[n] for n in order)),
        policy.DEFAULT,
        Result(Setting(RECORDED), real, 0),
        GUESSED,
    )


def _most(run: Run, key: str) -> float:
    """Of its GPUs, which it has at the same time."""
    return max(figures.get(key, 0.0) for figures in run.gpus.values())


def _work_ns(run: Run) -> int:
    """Its lease, as far as NVML called the GPU busy in it. To whole ms."""
    measured = _most(run, "measured_s")
    part = min(1.0, _most(run, "busy_s") / measured) if measured else 1.0
    return _ns(_most(run, "lease_s") * part)


def _ns(seconds: float) -> int:
    return round(seconds * S / MS) * MS


def _places(runs: Sequence[Run]) -> Mapping[str, int]:
    """By UUID, the index of each GPU; those of old records, which have none, come behind."""
    known = {uuid: index for run in runs for uuid, index in run.indices.items()}
    unknown = sorted({uuid for run in runs for uuid in run.gpus} - known.keys())
    behind = max(known.values(), default=-1) + 1
    return known | {uuid: behind + n for n, uuid in enumerate(unknown)}


def _job(row: Row, run: Run, places: Mapping[str, int], begin: float) -> Job:
    work = _work_ns(run)
    pauses = max(0, _ns(_most(run, "time_s") - _most(run, "wait_s")) - work)
    number = max(1, round(_most(run, "handoffs")))
    gpu, cpu = (max(MS, part // number // MS * MS) for part in (work, pauses))
    return Job(
        f"job {row.label}"[:40],
        round(_most(run, "peak_bytes")),
        cycles(gpu, cpu, number),
        tuple(sorted({places[uuid] for uuid in run.gpus})),
        _ns(run.since - begin),
        run.lock if run.lock in LOCKS else Job.lock,
        swaps=True,
        touches_bytes_s=TOUCHES_BYTES_S,
    )


def _ended(run: Run, job: Job) -> Ended:
    """What became of the run."""
    end = job.submit + _ns(_most(run, "time_s"))
    handoffs, moved = (
        round(sum(figures.get(key, 0) for figures in run.gpus.values()))
        for key in ("handoffs", "moved_bytes")
    )
    waited = _ns(_most(run, "wait_s"))
    return Ended(job.name, job.submit, job.submit, end, job.alone_ns, waited, 0, handoffs, moved)

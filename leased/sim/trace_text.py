"""A trace as the text of a TOML file, which trace.load() reads as the same trace again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from leased.base.words import size
from leased.sim.jobs import GIB, Gpu, Job, S, Trace
from leased.sim.trace import TOUCHES_BYTES_S

IN_A_LINE = 5  # bursts
Pairs = Sequence[tuple[int, int]]


def text(trace: Trace, notes: Iterable[str] = ()) -> str:
    """Times must be whole ms. notes: sentences that stand above it."""
    lines = [f"# {note}" for note in notes]
    lines += ["[gpu]", *_gpu(trace.gpus)]
    if trace.nodes > 1:
        lines += ["", "[nodes]", f"count = {trace.nodes}", f"latency = {_s(trace.latency)}"]
    for job in trace.jobs:
        lines += ["", f"# {_summary(job)}", "[[job]]", *_job(job)]
    return "\n".join(lines)


def _gpu(gpus: Sequence[Gpu]) -> Iterator[str]:
    first = gpus[0]
    yield f"memory = {first.memory}  # {size(first.memory)}"
    if len(gpus) > 1:
        yield f"count = {len(gpus)}"
    yield f"link_gib_s = {first.link_bytes_s / GIB:.3f}"
    yield f"paging_gib_s = {first.paging_bytes_s / GIB:.3f}"
    if first.side_by_side != 1:
        yield f"side_by_side = {first.side_by_side:g}"


def _job(job: Job) -> Iterator[str]:
    yield f"name = {json.dumps(job.name)}"
    if job.gpus != (0,):
        yield f"gpus = {list(job.gpus)}"
    if job.nodes != (0,):
        yield f"nodes = {list(job.nodes)}"
    yield f"memory = {job.memory}  # {size(job.memory)}"
    yield f'kind = "{"swap" if job.swaps else "managed"}"'
    yield f'lock = "{job.lock}"'
    yield f"tq = {_s(job.quantum)}"
    if job.submit:
        yield f"submit = {_s(job.submit)}"
    if job.drain:
        yield f"drain = {_s(job.drain)}"
    if job.touches_bytes_s != TOUCHES_BYTES_S:
        yield f"touches_gib_s = {job.touches_bytes_s / GIB:g}"
    yield from _bursts(job.bursts)


def _bursts(pairs: Pairs) -> Iterator[str]:
    if len(pairs) > 1 and len(set(pairs)) == 1:
        yield f"gpu = {_s(pairs[0][0])}"
        yield f"cpu = {_s(pairs[0][1])}"
        yield f"cycles = {len(pairs)}"
        return
    yield "bursts = ["
    for first in range(0, len(pairs), IN_A_LINE):
        row = (f"[{_s(on)}, {_s(off)}]" for on, off in pairs[first : first + IN_A_LINE])
        yield f"    {', '.join(row)},"
    yield "]"


def _summary(job: Job) -> str:
    on = job.gpu_ns
    return (
        f"{len(job.bursts)} bursts, {on / S:.1f} s of work and "
        f"{(job.alone_ns - on) / S:.1f} s of pauses"
    )


def _s(ns: int) -> str:
    """Seconds, exact to the ns."""
    whole, rest = divmod(ns, S)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")

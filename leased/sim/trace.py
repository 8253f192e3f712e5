"""A trace: GPUs and jobs as a TOML file describes them. docs/simulate.md has every key."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leased.base import toml_file
from leased.base.errors import Refused
from leased.sim import values
from leased.sim.jobs import GIB, LOCKS, Gpu, Job, Trace

MOST_JOBS = 10_000
MOST_NODES = 64  # as a job on several nodes may have
TOUCHES_BYTES_S = 150 * GIB  # about as much as jobs did that nvshare was measured with

# What may stand in [gpu], in [nodes] and in [[job]], and what reads it.
GPU_KEYS: dict[str, values.Read] = {
    "memory": values.some_size,
    "count": values.count(values.MOST_GPUS),
    "link_gib_s": values.speed,
    "paging_gib_s": values.speed,
    "daemon_gib_s": values.speed,
    "side_by_side": values.number(0.1, 64.0),
}
NODE_KEYS: dict[str, values.Read] = {
    "count": values.count(MOST_NODES),
    "latency": values.latency_ns,
}
JOB_KEYS: dict[str, values.Read] = {
    "name": values.name,
    "count": values.count(MOST_JOBS),
    "gpus": values.indices,
    "nodes": values.indices,
    "memory": values.size,
    "kind": values.one_of("managed", "swap"),
    "gpu": values.time_ns,
    "cpu": values.time_ns,
    "cycles": values.count(values.MOST_BURSTS),
    "jitter": values.number(0.0, 0.9),
    "bursts": values.bursts,
    "submit": values.time_ns,
    "every": values.time_ns,
    "lock": values.one_of(*LOCKS),
    "tq": values.some_time_ns,
    "drain": values.time_ns,
    "touches_gib_s": values.number(0.0, values.FASTEST_GIB_S, GIB),
    "idle_check": values.some_time_ns,
}
CYCLE = ("gpu", "cpu", "cycles", "jitter")


def load(path: Path) -> Trace:
    """Refused: the file cannot be read, or is no trace; it names the file, the key, the remedy."""
    try:
        return trace_of(toml_file.parse(toml_file.read(path)))
    except FileNotFoundError:
        raise Refused(f"there is no trace {path}", "docs/simulate.md shows one") from None
    except Refused as fault:
        words = str(fault) if str(path) in str(fault) else f"{path}: {fault}"
        raise Refused(words, fault.hint) from None


def trace_of(tables: dict[str, Any]) -> Trace:
    """Refused: these tables of a file are no trace."""
    for name in tables:
        if name not in ("gpu", "nodes", "job"):
            raise Refused(f"[{name:.40}] is not known", "a trace has [gpu], [nodes] and [[job]]")
    gpus = _gpus(tables.get("gpu"))
    said = values.taken(tables.get("nodes", {}), NODE_KEYS, "nodes")
    nodes, latency = said.get("count", 1), said.get("latency", Trace.latency)
    found = tables.get("job")
    if not isinstance(found, list) or not found:
        raise Refused("the trace has no jobs", "write a table [[job]] for each kind of job")
    jobs = [job for n, table in enumerate(found) for job in _jobs(table, n, gpus, nodes)]
    if len(jobs) > MOST_JOBS:
        raise Refused(f"the trace has {len(jobs)} jobs", f"write at most {MOST_JOBS}")
    return Trace(gpus, tuple(sorted(jobs, key=lambda job: job.submit)), nodes, latency)


def _gpus(table: Any) -> tuple[Gpu, ...]:
    if table is None:
        raise Refused("the trace has no GPU", 'write [gpu] with memory = "80GB", for example')
    said = values.taken(table, GPU_KEYS, "gpu")
    if "memory" not in said:
        raise Refused("gpu.memory is missing", 'write for example memory = "80GB"')
    names = {"link_gib_s": "link_bytes_s", "paging_gib_s": "paging_bytes_s"}
    names |= {"daemon_gib_s": "daemon_bytes_s"}
    count = said.pop("count", 1)
    one = Gpu(**{names.get(key, key): value for key, value in said.items()})
    return tuple([one] * count)


def _jobs(table: Any, number: int, gpus: tuple[Gpu, ...], nodes: int) -> Iterator[Job]:
    """The jobs of one [[job]]."""
    where = f"job[{number}]"
    said = values.taken(table, JOB_KEYS, where)
    if "memory" not in said:
        raise Refused(f"{where}.memory is missing", 'write for example memory = "20GiB"')
    name = said.get("name", f"job{number}")
    count, submit, every = said.get("count", 1), said.get("submit", 0), said.get("every", 0)
    first = Job(
        name=name,
        memory=said["memory"],
        bursts=(),
        gpus=_on(gpus, said, where),
        nodes=_of(nodes, said, where),
        swaps=said.get("kind", "managed") == "swap",
        drain=said.get("drain", 0),
        touches_bytes_s=said.get("touches_gib_s", TOUCHES_BYTES_S),
        idle_check=said.get("idle_check"),
        lock=said.get("lock", "auto"),
        quantum=said.get("tq", Job.quantum),
    )
    for n in range(count):
        called = f"{name}.{n}" if count > 1 else name
        yield Job(
            **vars(first)
            | {"name": called, "submit": submit + n * every}
            | {"bursts": _bursts(said, where, f"{number}.{n}")}
        )


def _there(said: dict[str, Any], where: str, what: str, number: int) -> tuple[int, ...]:
    """The indices of a job's "gpu" or "node", of which there are so many."""
    wanted: tuple[int, ...] = said.get(f"{what}s", (0,))
    if not 0 <= wanted[0] <= wanted[-1] < number:
        name, count = {"gpu": ("GPU", "gpu.count"), "node": ("node", "nodes.count")}[what]
        raise Refused(
            f"{where}.{what}s = {list(wanted)} are not all there",
            f"the {name}s are 0 to {number - 1}; {count} says how many there are",
        )
    return wanted


def _on(gpus: tuple[Gpu, ...], said: dict[str, Any], where: str) -> tuple[int, ...]:
    """The GPUs of a job, on which it must find room."""
    wanted = _there(said, where, "gpu", len(gpus))
    if said["memory"] > min(gpus[gpu].memory for gpu in wanted):
        raise Refused(
            f"{where}.memory is more than the GPU has", "write no more than gpu.memory says"
        )
    return wanted


def _of(nodes: int, said: dict[str, Any], where: str) -> tuple[int, ...]:
    """The nodes of a job, which has its GPUs for itself if there are several."""
    wanted = _there(said, where, "node", nodes)
    if len(wanted) > 1 and said.get("lock") == "off":
        raise Refused(f"{where} has several nodes and lock = off", "write on or auto")
    return wanted


def _bursts(said: dict[str, Any], where: str, seed: str) -> tuple[tuple[int, int], ...]:
    if "bursts" in said:
        both = [key for key in CYCLE if key in said]
        if both:
            raise Refused(f"{where} has bursts and {both[0]}", "write one of the two")
        found: tuple[tuple[int, int], ...] = said["bursts"]
    elif "gpu" not in said:
        raise Refused(f"{where}.gpu is missing", 'write for example gpu = "5s" and cycles = 10')
    else:
        found = cycles(
            *(said["gpu"], said.get("cpu", 0), said.get("cycles", 1)),
            *(said.get("jitter", 0.0), seed),
        )
    if not any(gpu for gpu, _ in found):
        raise Refused(f"{where} does nothing on the GPU", "write a time for gpu that is not 0")
    return found


def cycles(
    gpu: int, cpu: int, number: int, jitter: float = 0.0, seed: str = ""
) -> tuple[tuple[int, int], ...]:
    """So many bursts and pauses. jitter: each is longer or shorter by up to this part of it; all
    together they take as long as without. The same seed gives the same ones."""
    if not jitter:
        return ((gpu, cpu),) * number
    drawn = random.Random(f"gpu-lease {seed}")
    on, off = ([drawn.uniform(1 - jitter, 1 + jitter) for _ in range(number)] for _ in range(2))
    return tuple(zip(_scaled(on, gpu * number), _scaled(off, cpu * number)))


def _scaled(weights: list[float], whole: int) -> list[int]:
    """Whole numbers in these proportions, which add up to `whole`."""
    total, found, given, sofar = sum(weights), [], 0, 0.0
    for weight in weights:
        sofar += weight
        upto = round(whole * sofar / total)
        found.append(upto - given)
        given = upto
    return found

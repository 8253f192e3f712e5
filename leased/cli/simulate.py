"""gpu-leasectl simulate: what quanta, locks and policies would make of jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from leased import policy
from leased.base.errors import Refused
from leased.record.codec import Damaged
from leased.sim import history, observed, sweep, trace, trace_text, values
from leased.sim.jobs import LOCKS
from leased.sim.observed import Observed


def simulate(chosen: argparse.Namespace) -> tuple[Any, Callable[[], str]]:
    """The answer as JSON, and as text. Refused: bad input, or a job that would never end."""
    quanta = _list(chosen.tq, lambda text: values.some_time_ns(text, "--tq"))
    locks = _list(chosen.lock, lambda text: values.one_of(*LOCKS)(text, "--lock"))
    names = values.one_of(*policy.names())
    policies = _list(chosen.policy, lambda text: names(text, "--policy"))
    found = _source(chosen)
    if chosen.print_trace:
        words = trace_text.text(found.trace, found.notes)
        return {"trace": words}, lambda: words
    for note in found.notes:
        print(f"gpu-leasectl: {note}", file=sys.stderr)
    settings = sweep.settings(quanta or [None], locks or [None], policies or [found.policy])
    if chosen.move_idle:
        settings = [replace(one, moves=not one.exclusive) for one in settings]
    results = sweep.sweep(found.trace, settings)
    if found.real is not None:
        results.insert(0, found.real)

    def text() -> str:
        tables = [sweep.table(results)]
        if chosen.jobs:
            tables += map(sweep.job_table, results)
        return "\n\n".join(tables)

    return sweep.as_json(results), text


def _source(chosen: argparse.Namespace) -> Observed:
    """What is to be simulated."""
    if chosen.from_record is not None:
        return _recorded(chosen.from_record)
    if chosen.from_usage is not None:
        return _used(chosen)
    return Observed(trace.load(chosen.trace), policy.DEFAULT, None, ())


def _recorded(path: Path) -> Observed:
    """Refused: the file cannot be read, is no record, or no job in it has used a GPU."""
    said: list[str] = []
    try:
        found = observed.of(history.load(path, said))
        return replace(found, notes=(*said, *found.notes))
    except Damaged as fault:
        raise Refused(
            f"{path}: {fault}", "name a file that daemon.record has named, or FILE.1 beside it"
        ) from None
    except OSError as fault:
        raise Refused(
            f"the record {path} cannot be read ({fault.strerror})", "see docs/daemon.md, A record"
        ) from None
    except Refused as fault:
        raise Refused(f"{path}: {fault}", fault.hint) from None


def _used(chosen: argparse.Namespace) -> Observed:
    """Refused: see usage_trace.of() and sacct.ask()."""
    from leased.cli import slurm_commands, usage_trace
    from leased.slurm import sacct

    if chosen.gpu_memory is None:
        raise Refused(
            "Slurm's accounting does not say how much memory the GPUs have",
            'write for example --gpu-memory "138GiB": usable_bytes of gpu-leasectl status --json',
        )
    memory = values.some_size(chosen.gpu_memory, "--gpu-memory")
    env = slurm_commands.environment(chosen.config)
    rows = sacct.ask(sacct.Asked(since=chosen.from_usage), env)
    return usage_trace.of(rows, memory, chosen.node)


def _list(text: str | None, read: Callable[[str], Any]) -> list[Any]:
    """Values with commas between them, each once."""
    if text is None:
        return []
    found = list(dict.fromkeys(read(part.strip()) for part in text.split(",")))
    if not found:
        raise Refused("the list is empty", "leave the option out")
    return found

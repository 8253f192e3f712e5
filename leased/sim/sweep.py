"""A trace under many settings, and what came of each as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from leased.base.words import size
from leased.sim.jobs import S, Setting, Trace
from leased.sim.run import Ended, Result, run


def settings(
    quanta: Sequence[int | None], locks: Sequence[str | None], policies: Sequence[str]
) -> list[Setting]:
    """Every combination, after the jobs one after the other. Under lock:off the quantum makes no
    difference, so that stands there once."""
    found = [Setting(exclusive=True)]
    for policy in policies:
        for lock in locks:
            of_lock = [None] if lock == "off" else quanta
            found += [Setting(policy, lock, quantum) for quantum in of_lock]
    return found


def sweep(trace: Trace, chosen: Iterable[Setting]) -> list[Result]:
    """Refused: under one of them some job would never end."""
    return [run(trace, setting) for setting in chosen]


def seconds(ns: float) -> str:
    """A time in at most 8 characters."""
    value = ns / S
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def words_of(setting: Setting) -> tuple[str, str, str]:
    """Policy, lock and quantum as a table shows them."""
    if setting.exclusive:
        return "one by one", "-", "-"
    quantum = "as asked" if setting.quantum is None else f"{setting.quantum / S:g} s"
    return setting.policy, setting.lock or "as asked", "-" if setting.lock == "off" else quantum


def table(results: Sequence[Result]) -> str:
    """A table with a line for each setting, in 80 columns. The shortest makespan is marked."""
    titles = "".join(f"{title:>10}" for title in ("all done", "mean job", "waited"))
    lines = [f"{'policy':11}{'lock':9}{'tq':>9}{titles}{'handoffs':>10}{'moved':>10}"]
    best = min(result.makespan for result in results)
    for result in results:
        policy, lock, quantum = words_of(result.setting)
        mark = "*" if result.makespan == best else " "
        lines.append(
            f"{policy:11.11}{lock:9}{quantum:>9}{seconds(result.makespan) + mark:>10}"
            f"{seconds(result.mean_turnaround):>10}{seconds(result.longest_wait):>10}"
            f"{result.handoffs:>10}{size(result.moved):>10}"
        )
    lines.append("* done first. mean job: mean from submission to end. waited: longest of a job.")
    return "\n".join(line.rstrip() for line in lines)


def job_table(result: Result) -> str:
    """A table with a line for each job, in 80 columns."""
    policy, lock, quantum = words_of(result.setting)
    title = policy if result.setting.exclusive else f"{policy}, lock:{lock}, tq:{quantum}"
    titles = ("submitted", "ended", "waited", "handoffs", "moved")
    lines = [title, f"{'job':22}" + "".join(f"{each:>10}" for each in titles)]
    for job in result.jobs:
        lines.append(
            f"{job.name:22.22}{seconds(job.submit):>10}{seconds(job.end):>10}"
            f"{seconds(job.waited):>10}{job.handoffs:>10}{size(job.moved):>10}"
        )
    return "\n".join(lines)


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """An object for each setting; times are seconds, sizes are bytes."""
    return [_result(result) for result in results]


def _result(result: Result) -> dict[str, Any]:
    setting = result.setting
    return {
        "policy": None if setting.exclusive else setting.policy,
        "lock": setting.lock,
        "quantum_s": None if setting.quantum is None else setting.quantum / S,
        "exclusive": setting.exclusive,
        "makespan_s": round(result.makespan / S, 6),
        "mean_turnaround_s": round(result.mean_turnaround / S, 6),
        "longest_wait_s": round(result.longest_wait / S, 6),
        "handoffs": result.handoffs,
        "moved_bytes": result.moved,
        "events": result.events,
        "jobs": [_job(job) for job in result.jobs],
    }


def _job(job: Ended) -> dict[str, Any]:
    times = ("submit", "start", "end", "alone", "waited", "moving")
    return {
        "name": job.name,
        **{f"{name}_s": round(getattr(job, name) / S, 6) for name in times},
        "handoffs": job.handoffs,
        "moved_bytes": job.moved,
    }

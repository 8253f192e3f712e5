"""What jobs of a user and a name have done with their GPU in earlier runs, from Slurm's accounting.

Nothing is kept: it is read out of the usage that stands in each run's SystemComment. Runs on one
GPU count, those in which the job was alone on it and did not wait before all others: what it does
beside others is less than what it would do alone. Lengths of kernels and bandwidth are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from leased.matching.profile import NAME_MOST, Kind, Profile
from leased.slurm import usage_record
from leased.slurm.sacct import run_sacct
from leased.slurm.usage_record import Damaged, Run

SINCE = "now-7days"
PATIENCE_S = 300.0
OUTPUT_MOST = 1 << 26  # bytes
SHORTEST_S = 10.0  # of a run that says something
ALONE = 0.1  # of its time, the most that a run beside others, or that waited, counts as alone
COLUMNS = ("UID", "JobName", "SystemComment")


class Sums(NamedTuple):
    """Of one run: how long it was there without waiting, and how long its GPU worked for it, s; the
    most memory that it had, bytes."""

    there: float
    worked: float
    memory: int
    alone: bool


def ask(env: Mapping[str, str] | None = None) -> dict[Kind, Profile] | None:
    """By user and name. None: Slurm's accounting does not say it."""
    try:
        done, between = run_sacct(
            COLUMNS, ["--allusers", f"--starttime={SINCE}"], env, PATIENCE_S, OUTPUT_MOST
        )
    except OSError:
        return None
    return None if done.fault or done.status else profiles(parse(done.out, between))


def parse(text: str, between: str) -> Iterator[tuple[Kind, Run]]:
    """The runs in what sacct prints that have a usage that can be read."""
    cells = text.split(between)
    for n in range(0, len(cells) - len(COLUMNS) + 1, len(COLUMNS)):
        uid, name, comment = cells[n : n + len(COLUMNS)]
        try:
            run = usage_record.read(comment)
        except Damaged:
            continue
        if run is not None and uid.strip().isdecimal():
            yield Kind(int(uid), name[:NAME_MOST]), run


def profiles(runs: Iterable[tuple[Kind, Run]]) -> dict[Kind, Profile]:
    found: dict[Kind, list[Sums]] = {}
    for kind, run in runs:
        sums = _sums(run)
        if sums is not None:
            found.setdefault(kind, []).append(sums)
    return {kind: _profile(each) for kind, each in found.items()}


def _sums(run: Run) -> Sums | None:
    if len(run.gpus) != 1:
        return None
    [had] = run.gpus.values()
    time, lease, measured = (had.get(name, 0.0) for name in ("time_s", "lease_s", "measured_s"))
    waited = had.get("wait_s", 0.0)
    there = time - waited
    if there < SHORTEST_S or not measured:
        return None
    worked = had.get("busy_s", 0.0) * lease / measured
    alone = had.get("shared_s", 0.0) + waited <= ALONE * time
    return Sums(there, min(there, worked), int(had.get("peak_bytes", 0)), alone)


def _profile(runs: list[Sums]) -> Profile:
    some = [run for run in runs if run.alone] or runs
    busy = sum(run.worked for run in some) / sum(run.there for run in some)
    return Profile(round(busy, 4), max(run.memory for run in runs))

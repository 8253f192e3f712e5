"""Where Slurm has put a process: cgroups below those that only Slurm itself makes.

The name of a cgroup proves nothing. In a subtree that was given to them (user@UID.service, a
container, a step) users make any names, also Slurm's. So nothing is believed but what lies
below a *scope*: the place where slurmstepds that registered were themselves seen with their
jobs. Below it only root can make anything:
  v1  /slurm/uid_0/job_7/step_0; slurm_NODE where several slurmd share a host
  v2  /system.slice/slurmstepd.scope/job_7/step_0/user/task_0; NODE_slurmstepd.scope, other
      slices, below a container's; from Slurm 26.05 the job's SLUID without its number
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from leased.processes.procfs import Cgroup

JOB = rb"(?:/uid_\d{1,10})?/(?:job_(?P<number>\d{1,10})|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13}))"
# A part of a heterogeneous step is step_0+1: one step for Slurm's commands.
STEP = rb"/step_(?P<step>[0-9a-z]{1,16})(?:\+\d{1,10})?"
BELOW_SCOPE = re.compile(JOB + STEP + rb"(?:/|\Z)")
# slurmstepd itself is in its job's (v1) or somewhere in its step's (v2).
OF_STEPD = re.compile(JOB + rb"(?=/|\Z)")


@dataclass(frozen=True)
class Place:
    """Where a process is. cgroup: its job's; job: its number, None where a SLUID stands."""

    cgroup: Cgroup
    job: int | None
    step: str


@dataclass(frozen=True)
class Home:
    """Where a slurmstepd is: the scope, and its job's cgroup below it."""

    scope: Cgroup
    cgroup: Cgroup


def homes_of(cgroups: Iterable[Cgroup], job: int) -> list[Home]:
    """Where the slurmstepd of a job is, in each hierarchy that Slurm uses for it.

    A slurmd may itself run in the job of another Slurm: so the last that fits counts.
    """
    found = []
    for where in cgroups:
        fits = [m for m in OF_STEPD.finditer(where.path) if m["sluid"] or int(m["number"]) == job]
        if fits:
            scope = Cgroup(where.controllers, where.path[: fits[-1].start()])
            found.append(Home(scope, Cgroup(where.controllers, where.path[: fits[-1].end()])))
    return found


def place_of(cgroups: Iterable[Cgroup], scopes: Collection[Cgroup]) -> Place | None:
    """The place below one of the scopes; None: it is below none, or in several jobs'."""
    found: dict[tuple[int | None, bytes | None], Place] = {}
    for where in cgroups:
        for scope in scopes:
            if scope.controllers != where.controllers or not where.path.startswith(scope.path):
                continue
            m = BELOW_SCOPE.match(where.path, len(scope.path))
            if m:
                cgroup = Cgroup(where.controllers, where.path[: m.start("step") - len(b"/step_")])
                job = int(m["number"]) if m["number"] else None
                found[job, m["sluid"]] = Place(cgroup, job, m["step"].decode())
    return found.popitem()[1] if len(found) == 1 else None


def looks_like(cgroups: Iterable[Cgroup]) -> set[int]:
    """The jobs whose cgroups these look like: a hint and no proof, since anybody can make such."""
    return {int(m["number"]) for c in cgroups for m in OF_STEPD.finditer(c.path) if m["number"]}


def job_of(place: Place, sluids: Mapping[Cgroup, int]) -> int | None:
    """The number of a place's job. sluids: the jobs of those cgroups that have no number."""
    return place.job or sluids.get(place.cgroup)

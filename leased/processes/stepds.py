"""The slurmstepds that have registered, and by them the job and step of any process.

A process is a job's by its cgroup (slurm_cgroups.py), else by descent from a slurmstepd of the job.
Its user does not matter: what runs in a job's cgroup is the job's also as another uid (su, the
uids of a container's user namespace), and nobody but root can bring a process there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from leased.processes import procfs, slurm_cgroups
from leased.processes.identity import ProcessId, Step, alive, ancestors, process_id
from leased.processes.procfs import PROC, Cgroup
from leased.processes.slurm_cgroups import Place

# slurmstepd's own title: "slurmstepd: [7.batch]"; het jobs: "[7+1.0]".
STEP_IN_TITLE = re.compile(rb"slurmstepd: \[\d+(?:\+\d+)?\.([0-9a-z]{1,16})")
MORE_STEPDS = 64
SCOPES = 64  # a node has one for each slurmd and hierarchy
SLUIDS = 4096  # whose jobs are known; the oldest is forgotten


@dataclass(frozen=True)
class Known:
    """What is known at one moment. stepds: by pid, the slurmstepd as it registered, and its job."""

    stepds: Mapping[int, tuple[ProcessId, int]] = field(default_factory=dict)
    scopes: frozenset[Cgroup] = frozenset()
    sluids: Mapping[Cgroup, int] = field(default_factory=dict)

    def step_of(self, pid: int, proc: Path = PROC) -> Step | None:
        """The job and step of a process; None: it is of no job.

        A cgroup of a registered job counts more than descent, and that more than the cgroup
        of a job that has not registered.
        """
        place = slurm_cgroups.place_of(procfs.cgroups(pid, proc) or (), self.scopes)
        job = slurm_cgroups.job_of(place, self.sluids) if place else None
        registered = job is not None and any(job == known for _, known in self.stepds.values())
        if not registered:
            for stepd in self._above(pid, proc):
                return Step(self.stepds[stepd][1], self._step_below(stepd, place, proc))
        return Step(job, place.step) if place and job else None

    def _above(self, pid: int, proc: Path) -> Iterator[int]:
        for ancestor in ancestors(pid, proc):
            known = self.stepds.get(ancestor)
            if known is not None and alive(known[0], proc):
                yield ancestor

    @staticmethod
    def _step_below(stepd: int, place: Place | None, proc: Path) -> str | None:
        """The step of a process by descent, where its cgroup is no other job's."""
        if place is not None:
            return None if place.job else place.step
        title = STEP_IN_TITLE.match(procfs.command_line(stepd, proc) or b"")
        return title[1].decode() if title else None


class Keeper(Protocol):
    """What remembers them while no daemon runs: the store."""

    def stepds(self) -> dict[int, tuple[ProcessId, int]]: ...
    def add_stepd(self, process: ProcessId, job_id: int) -> None: ...
    def forget_stepd(self, pid: int) -> None: ...


class Stepds:
    """All slurmstepds that have registered and still run, also with a previous daemon."""

    def __init__(self, store: Keeper, proc: Path = PROC):
        self.store = store
        self.proc = proc
        self.by_pid = store.stepds()
        self.most = MORE_STEPDS  # with more, those that have ended are looked for
        self.homeless: dict[int, None] = {}  # not seen in a cgroup of Slurm's
        self.scopes: frozenset[Cgroup] = frozenset()
        self.sluids: dict[Cgroup, int] = {}
        self._forget_dead()
        for pid in self.by_pid:
            self.look(pid)

    def register(self, pid: int, job: int) -> None:
        """A slurmstepd says that it runs a step of this job."""
        process = process_id(pid, self.proc)
        if process is None:
            return
        if len(self.by_pid) > self.most:
            self._forget_dead()
            self.most = 2 * len(self.by_pid) + MORE_STEPDS
        self.by_pid[pid] = (process, job)
        self.store.add_stepd(process, job)
        self.look(pid)

    def lives(self, job: int) -> bool:
        """Whether a slurmstepd of the job has registered and still runs."""
        mine = [process for process, known in self.by_pid.values() if known == job]
        return any(alive(process, self.proc) for process in mine)

    def known(self) -> Known:
        """What is known now; it does not change later."""
        for pid in list(self.homeless):
            self.look(pid)
        return Known(dict(self.by_pid), self.scopes, dict(self.sluids))

    def job_of(self, pid: int) -> int | None:
        """The job of the process that has this pid now."""
        step = self.step_of(pid)
        return step.job if step else None

    def step_of(self, pid: int) -> Step | None:
        """The job and step of the process that has this pid now; None: it is of no job."""
        if self.homeless:
            # Without proctrack/cgroup a slurmstepd comes to its cgroup after it has registered.
            hinted = slurm_cgroups.looks_like(procfs.cgroups(pid, self.proc) or ())
            for homeless in [h for h in self.homeless if self.by_pid[h][1] in hinted]:
                self.look(homeless)
        return Known(self.by_pid, self.scopes, self.sluids).step_of(pid, self.proc)

    def place_of(self, pid: int) -> Place | None:
        """Where Slurm has put a process; None: it is in no cgroup of a job."""
        return slurm_cgroups.place_of(procfs.cgroups(pid, self.proc) or (), self.scopes)

    def job_of_cgroup(self, cgroup: Cgroup) -> int | None:
        """The job that has this cgroup, or one of whose steps has it."""
        of_step = Cgroup(cgroup.controllers, cgroup.path + b"/step_0")
        places = (slurm_cgroups.place_of((one,), self.scopes) for one in (cgroup, of_step))
        place = next(filter(None, places), None)
        return slurm_cgroups.job_of(place, self.sluids) if place else None

    def below_stepd(self, pid: int) -> ProcessId | None:
        """The child of a registered slurmstepd that is this process or above it, or None."""
        child = None
        for parent in ancestors(pid, self.proc):
            known = self.by_pid.get(parent) if child is not None else None
            if child is not None and known is not None and alive(known[0], self.proc):
                return process_id(child, self.proc)
            child = parent
        return None

    def look(self, pid: int) -> None:
        """Find where Slurm has put this slurmstepd: it puts all processes of the step there."""
        process, job = self.by_pid[pid]
        cgroups = procfs.cgroups(pid, self.proc) or ()
        homes = slurm_cgroups.homes_of(cgroups, job) if alive(process, self.proc) else []
        for home in homes:
            if len(self.scopes) < SCOPES:
                self.scopes |= {home.scope}
            # Two jobs in one cgroup: it is of neither, slurmd itself was started there.
            other = self.sluids.pop(home.cgroup, job) != job
            self.sluids[home.cgroup] = 0 if other else job
            if len(self.sluids) > SLUIDS:
                del self.sluids[next(iter(self.sluids))]
        if homes:
            self.homeless.pop(pid, None)
        else:
            self.homeless[pid] = None

    def _forget_dead(self) -> None:
        for pid, (process, _) in list(self.by_pid.items()):
            if not alive(process, self.proc):
                del self.by_pid[pid]
                self.homeless.pop(pid, None)
                self.store.forget_stepd(pid)

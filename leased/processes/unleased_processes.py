"""Processes that use a leased GPU without a lease: pure. What was seen in, what to do out.

A stray is a process with a context on a device that jobs share which is no
client there and has no interposer either: LD_PRELOAD was unset, or the program
is static, setuid or in a container. A process with the interposer asks before
its first use of the device, so its bare context is none. A process is asked who it
is when it is first seen, and watched for a while before it is called anything; one that
goes before is counted by what it was seen as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from leased.api import answers
from leased.processes.identity import ProcessId, Step

CONFIRM_POLLS = 4
CONFIRM_NS = 2_000_000_000
GAP_NS = 5_000_000_000  # without a look at the device: begin anew
AGAIN_NS = 60_000_000_000  # a step that does not end is ended again
NAMED_PER_JOB = 8  # further strays of the job, or user, are only counted
SHOWN = 64
# The step of ssh sessions that Slurm has adopted: it cannot be ended without the whole job,
# which has done nothing wrong.
EXTERN = "extern"
JOBS_COUNTED = 1024  # then the job that was counted first is forgotten


@dataclass(frozen=True)
class Process:
    """What the kernel says of one. start: in clock ticks; step: None when of no Slurm job."""

    pid: int
    start: int
    uid: int
    command: str
    step: Step | None
    interposed: bool

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@dataclass(frozen=True)
class Policy:
    """The site's: count, warn (also name it) or end (also end its step, after grace_ns; never
    the extern one).

    allow: uids whose processes are named, and held against no job.
    """

    action: str = "warn"
    grace_ns: int = 0
    allow: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Found:
    """One more of a job, or of a user where it is of no job.

    blamed: it is held against its job, not of no job and not of a user on the allow list.
    named: people are to hear of it; first: of its job or user; last: further ones are only
    counted. brief: it has gone already.
    """

    process: Process
    device: str
    bytes: int
    blamed: bool
    named: bool
    first: bool
    last: bool
    brief: bool = False


@dataclass(frozen=True)
class End:
    """The step of this process is to be ended, through Slurm."""

    step: Step
    process: Process


Action = Found | End
# Who has a pid now; None: it is gone, or not what NVML means.
Who = Callable[[int], Process | None]


@dataclass
class Sighting:
    """One pid on one device, in every poll since `since` (ns)."""

    since: int
    polls: int = 0
    bytes: int = 0
    first: Process | None = None  # as it was when it was first seen
    process: Process | None = None  # once it is a stray for sure
    elsewhere: bool = False  # a client, whose tenant does not lease this device


@dataclass
class UnleasedProcesses:
    """All that is known of strays on this node."""

    policy: Policy = Policy()
    seen: dict[tuple[str, int], Sighting] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    # Processes counted, by job or by user where none is held against the job.
    counts: dict[int, int] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)
    ended: dict[Step, int] = field(default_factory=dict)
    total: int = 0

    def look(
        self,
        now: int,
        device: str,
        processes: Mapping[int, int],
        clients: Mapping[int, bool],
        who: Who,
    ) -> list[Action]:
        """One poll of a device that jobs share. now: ns; processes: bytes by pid.

        clients: pids of connected clients; True where the tenant leases this device.
        """
        suspects = {pid: size for pid, size in processes.items() if not clients.get(pid)}
        recent = now - self.looked.get(device, now) < GAP_NS
        actions = self._gone(device, processes) if recent else []
        self.looked[device] = now
        self.leave(device, suspects if recent else None)
        for pid, size in suspects.items():
            ripe = self.is_ripe(now, device, pid)
            sighting = self.seen.setdefault((device, pid), Sighting(now))
            sighting.polls += 1
            sighting.bytes = size
            sighting.elsewhere = pid in clients
            if not ripe:
                sighting.first = sighting.first or who(pid)
            elif sighting.process is None:
                self._confirm(now, device, pid, who, actions)
            else:
                self._end(now, device, pid, who, actions)
        return actions

    def asks(self, now: int, device: str, pid: int) -> bool:
        """Whether the next look at the device will ask who this is."""
        known = self.seen.get((device, pid))
        if known is None or now - self.looked.get(device, now) >= GAP_NS:
            return True  # after a gap all begins anew
        return known.first is None or self.is_ripe(now, device, pid)

    def is_ripe(self, now: int, device: str, pid: int) -> bool:
        """Whether it will have been there long enough at the next look at the device."""
        known = self.seen.get((device, pid))
        if known is None or now - self.looked.get(device, now) >= GAP_NS:
            return False
        return known.polls + 1 >= CONFIRM_POLLS and now - known.since >= CONFIRM_NS

    def sees(self, device: str) -> bool:
        """Whether there is somebody on the device who may be one."""
        return any(known == device for known, _ in self.seen)

    def leave(self, device: str, stay: Mapping[int, int] | None = None) -> None:
        """Forget who is on the device no more; without `stay` everybody."""
        for key in [k for k in self.seen if k[0] == device and k[1] not in (stay or ())]:
            del self.seen[key]

    def status(self) -> answers.UnleasedProcesses:
        """For people: what was counted, and who is there now."""
        found = [(d, s, s.process) for (d, _), s in self.seen.items() if s.process]
        return {
            "action": self.policy.action,
            "total": self.total,
            "jobs": {str(job): n for job, n in self.counts.items()},
            "now": [self._shown(*each) for each in found[:SHOWN]],
            "more": max(0, len(found) - SHOWN),
        }

    @staticmethod
    def _shown(device: str, sighting: Sighting, process: Process) -> answers.UnleasedProcess:
        return {
            "job_id": process.step.job if process.step else None,
            "step": process.step.name if process.step else None,
            "uid": process.uid,
            "pid": process.pid,
            "command": process.command,
            "device": device,
            "bytes": sighting.bytes,
        }

    # -- one sighting -----------------------------------------------------------

    def _gone(self, device: str, processes: Mapping[int, int]) -> list[Action]:
        """Those that have left the device before they could be confirmed."""
        actions: list[Action] = []
        for (known, pid), sighting in self.seen.items():
            if known != device or pid in processes or sighting.process is not None:
                continue
            if self._is_stray(sighting.first, False) and not self._is_also_at(sighting):
                self._found(device, sighting, sighting.first, actions, brief=True)
        return actions

    def _is_also_at(self, sighting: Sighting) -> bool:
        """Whether its process is on another device, and is or will be counted there."""
        return any(
            sighting is not other and self._same(seen, sighting.first or sighting.process)
            for other in self.seen.values()
            for seen in (other.first, other.process)
        )

    @staticmethod
    def _is_stray(process: Process | None, elsewhere: bool) -> TypeGuard[Process]:
        """Whether it has no business on the device. With the interposer a process of a job has,
        unless its job leases another device; one of no job has none."""
        if process is None:
            return False
        return not process.interposed or elsewhere or process.step is None

    def _confirm(self, now: int, device: str, pid: int, who: Who, actions: list[Action]) -> None:
        """It has been there long enough: is it a stray?"""
        process = who(pid)
        sighting = self.seen[device, pid]
        if not self._is_stray(process, sighting.elsewhere):
            self.seen[device, pid] = Sighting(now, first=process)  # look again after a while
            return
        known = any(self._same(other.process, process) for other in self.seen.values())
        sighting.process = process
        if not known:  # from another device
            self._found(device, sighting, process, actions)

    def _found(
        self,
        device: str,
        sighting: Sighting,
        process: Process,
        actions: list[Action],
        brief: bool = False,
    ) -> None:
        """Count it."""
        blamed = self._job_of(process)
        counts, key = (self.others, process.uid) if blamed is None else (self.counts, blamed)
        n = self._count(counts, key)
        named = self.policy.action != "count" and n <= NAMED_PER_JOB
        told = (blamed is not None, named, n == 1, n == NAMED_PER_JOB, brief)
        actions.append(Found(process, device, sighting.bytes, *told))

    @staticmethod
    def _same(one: Process | None, other: Process | None) -> bool:
        return bool(one and other and (one.pid, one.start) == (other.pid, other.start))

    def _job_of(self, process: Process) -> int | None:
        """The job that answers for it; None: nobody's, it is only named."""
        if process.step is None or process.uid in self.policy.allow:
            return None
        return process.step.job

    def _count(self, counts: dict[int, int], key: int) -> int:
        self.total += 1
        if key not in counts and len(counts) >= JOBS_COUNTED:
            del counts[next(iter(counts))]
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    def _end(self, now: int, device: str, pid: int, who: Who, actions: list[Action]) -> None:
        """A stray stays: end its step when its grace is over, once, and again after a while."""
        sighting = self.seen[device, pid]
        known = sighting.process
        assert known is not None
        step = known.step
        if self.policy.action != "end" or self._job_of(known) is None or sighting.elsewhere:
            return
        if now - sighting.since < self.policy.grace_ns or step is None:
            return
        if step.name is None or step.name == EXTERN:
            return
        if now - self.ended.get(step, -AGAIN_NS) < AGAIN_NS:
            return
        process = who(pid)
        if process is None or (process.start, process.step) != (known.start, step):
            del self.seen[device, pid]  # another one has its number
            return
        if not process.interposed:
            self.ended = {s: at for s, at in self.ended.items() if now - at < AGAIN_NS}
            self.ended[step] = now
            actions.append(End(step, process))

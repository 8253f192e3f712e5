"""Processes that use a leased GPU without a lease: pure. What was seen in, what to do out.

A stray is a process with a context on a device that jobs share which is no
client there and has no interposer either: LD_PRELOAD was unset, or the program
is static, setuid or in a container. A process with the interposer asks before
its first use of the device, so its bare context is none. A process that has
just started is watched for a while before it is called anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leased.identity import Step

ACTIONS = ("count", "warn", "end")
CONFIRM_POLLS = 4
CONFIRM_NS = 2_000_000_000
GAP_NS = 5_000_000_000  # without a look at the device: begin anew
AGAIN_NS = 60_000_000_000  # a step that does not end is ended again
NAMED_PER_JOB = 8  # further strays of the job are only counted
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


@dataclass(frozen=True)
class Policy:
    """The site's: count, warn (also name it) or end (also end its step, after grace_ns; never
    the extern one).

    allow: uids whose processes are only counted.
    """

    action: str = "warn"
    grace_ns: int = 10_000_000_000
    allow: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Found:
    """One more of a job. named: people are to hear of it; first: of its job; last: further
    ones of the job are only counted."""

    process: Process
    device: str
    bytes: int
    named: bool
    first: bool
    last: bool


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
    process: Process | None = None  # once it is a stray for sure
    elsewhere: bool = False  # a client, whose tenant does not lease this device


@dataclass
class Strays:
    """All that is known of strays on this node."""

    policy: Policy = Policy()
    seen: dict[tuple[str, int], Sighting] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    # Processes counted, by job; None: of no Slurm job, or of a user on the allow list.
    counts: dict[int | None, int] = field(default_factory=dict)
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
        self.looked[device] = now
        self.leave(device, suspects if recent else None)
        actions: list[Action] = []
        for pid, size in suspects.items():
            ripe = self.is_ripe(now, device, pid)
            sighting = self.seen.setdefault((device, pid), Sighting(now))
            sighting.polls += 1
            sighting.bytes = size
            sighting.elsewhere = pid in clients
            if not ripe:
                continue
            if sighting.process is None:
                self._confirm(now, device, pid, who, actions)
            else:
                self._end(now, device, pid, who, actions)
        return actions

    def is_ripe(self, now: int, device: str, pid: int) -> bool:
        """Whether the next look at the device will ask who this is."""
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

    def status(self) -> dict[str, Any]:
        """For people: what was counted, and who is there now."""
        found = [(d, s) for (d, _), s in self.seen.items() if s.process]
        return {
            "action": self.policy.action,
            "total": self.total,
            "jobs": {str(job): n for job, n in self.counts.items() if job is not None},
            "now": [self._shown(device, sighting) for device, sighting in found[:SHOWN]],
        }

    def _shown(self, device: str, sighting: Sighting) -> dict[str, Any]:
        process = sighting.process
        assert process is not None
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

    def _confirm(self, now: int, device: str, pid: int, who: Who, actions: list[Action]) -> None:
        """It has been there long enough: is it a stray?"""
        process = who(pid)
        sighting = self.seen[device, pid]
        if process is None or (process.interposed and not sighting.elsewhere):
            self.seen[device, pid] = Sighting(now)  # look at it again after a while
            return
        again = any(
            s.process is not None and (s.process.pid, s.process.start) == (pid, process.start)
            for s in self.seen.values()
        )
        sighting.process = process
        if again:
            return  # it is known, from another device
        job = self._job_of(process)
        self._count(job)
        if job is not None:
            n = self.counts[job]
            named = self.policy.action != "count" and n <= NAMED_PER_JOB
            found = Found(process, device, sighting.bytes, named, n == 1, n == NAMED_PER_JOB)
            actions.append(found)

    def _job_of(self, process: Process) -> int | None:
        """The job that answers for it; None: nobody's, it is only counted."""
        if process.step is None or process.uid in self.policy.allow:
            return None
        return process.step.job

    def _count(self, job: int | None) -> None:
        self.total += 1
        if job not in self.counts and len(self.counts) >= JOBS_COUNTED:
            del self.counts[next(iter(self.counts))]
        self.counts[job] = self.counts.get(job, 0) + 1

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

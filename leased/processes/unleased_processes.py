"""Finds strays among the processes that NVML shows. It does no input and no output: what was seen
goes in, what is to be done comes out.

A stray is a process with a context on a device that jobs share which is no client there and has no
interposer either: LD_PRELOAD was unset, or the program is static, setuid or in a container. A
process with the interposer asks before its first use of the device, so a context alone does not
make it a stray. But one whose connection has ended while it held a lease, and that has not come
back, may have run on.
Who a process is, is asked when it is first seen. It is watched for CONFIRM_NS before it is called a
stray; one that ends before is counted by what it was when it was first seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leased.api import answers
from leased.processes.identity import Step
from leased.processes.stray import (
    Action,
    End,
    Found,
    Policy,
    Process,
    StrayCounts,
    Who,
    answerable_job,
)

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

CONFIRM_POLLS = 4
CONFIRM_NS = 2_000_000_000
GAP_NS = 5_000_000_000  # after so long without a look at the device, watching begins anew
AGAIN_NS = 60_000_000_000  # a step that has not ended is ended again after this
SHOWN = 64
# The step of ssh sessions that Slurm has adopted: it cannot be ended without the whole job,
# which has done nothing wrong.
EXTERN = "extern"


@dataclass
class Sighting:
    """One pid on one device, in every poll since `since` (ns)."""

    since: int
    polls: int = 0
    bytes: int = 0
    first: Process | None = None  # as it was when it was first seen
    process: Process | None = None  # once it is a stray for sure
    elsewhere: bool = False  # a client whose tenant does not lease this device, or that is cut off


@dataclass
class UnleasedProcesses:
    """All that is known of strays on this node. look() is called at every poll of a device."""

    policy: Policy = field(default_factory=Policy)
    seen: dict[tuple[str, int], Sighting] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    counts: StrayCounts = field(default_factory=StrayCounts)
    ended: dict[Step, int] = field(default_factory=dict)  # when a step was last ended

    def look(
        self,
        now: int,
        device: str,
        processes: Mapping[int, int],
        clients: Mapping[int, bool],
        who: Who,
    ) -> list[Action]:
        """One poll of a device that jobs share. now: ns; processes: bytes by pid.

        clients: pids of connected clients; True where the tenant leases this device, and False also
        for clients whose connection has ended while they held a lease.
        """
        suspects = {pid: size for pid, size in processes.items() if not clients.get(pid)}
        recent = now - self.looked.get(device, now) < GAP_NS
        actions = self._gone(device, processes) if recent else []
        self.looked[device] = now
        self.forget(device, suspects if recent else None)
        for pid, size in suspects.items():
            confirmable = self.is_confirmable(now, device, pid)
            sighting = self.seen.setdefault((device, pid), Sighting(now))
            sighting.polls += 1
            sighting.bytes = size
            sighting.elsewhere = pid in clients
            if not confirmable:
                sighting.first = sighting.first or who(pid)
            elif sighting.process is None:
                self._confirm(now, device, pid, who, actions)
            else:
                self._end(now, device, pid, who, actions)
        return actions

    def will_ask(self, now: int, device: str, pid: int) -> bool:
        """Whether the next look() at the device will ask which process has this pid."""
        known = self.seen.get((device, pid))
        if known is None or now - self.looked.get(device, now) >= GAP_NS:
            return True  # after a gap every process is watched from the beginning
        return known.first is None or self.is_confirmable(now, device, pid)

    def is_confirmable(self, now: int, device: str, pid: int) -> bool:
        """Whether the process will have been watched for long enough at the next look()."""
        known = self.seen.get((device, pid))
        if known is None or now - self.looked.get(device, now) >= GAP_NS:
            return False
        return known.polls + 1 >= CONFIRM_POLLS and now - known.since >= CONFIRM_NS

    def has_suspects(self, device: str) -> bool:
        """Whether a process on the device may be a stray."""
        return any(known == device for known, _ in self.seen)

    def forget(self, device: str, stay: Mapping[int, int] | None = None) -> None:
        """Forget the processes of the device that are not in `stay`; without it all of them."""
        for key in [k for k in self.seen if k[0] == device and k[1] not in (stay or ())]:
            del self.seen[key]

    def status(self) -> answers.UnleasedProcesses:
        """What status shows: how many strays were counted, and which use a GPU now."""
        found = [(d, s, s.process) for (d, _), s in self.seen.items() if s.process]
        return {
            "action": self.policy.action,
            "total": self.counts.total,
            "jobs": {str(job): n for job, n in self.counts.of_jobs.items()},
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
        """Strays that have left the device before they were watched for long enough."""
        actions: list[Action] = []
        for (known, pid), sighting in self.seen.items():
            if known != device or pid in processes or sighting.process is not None:
                continue
            if self._is_stray(sighting.first, False) and not self._is_also_at(sighting):
                actions.append(self._count(device, sighting, sighting.first, brief=True))
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
        """Whether the process is a stray.

        A process of a job with the interposer is none, unless its job leases other devices only, or
        its connection has ended while it held a lease (elsewhere).
        """
        if process is None:
            return False
        return not process.interposed or elsewhere or process.step is None

    def _confirm(self, now: int, device: str, pid: int, who: Who, actions: list[Action]) -> None:
        """The process has been watched for long enough: count it if it is a stray."""
        process = who(pid)
        sighting = self.seen[device, pid]
        if not self._is_stray(process, sighting.elsewhere):
            self.seen[device, pid] = Sighting(now, first=process)  # watch it anew
            return
        known = any(self._same(other.process, process) for other in self.seen.values())
        sighting.process = process
        if not known:  # it has not been counted on another device
            actions.append(self._count(device, sighting, process, brief=False))

    def _count(self, device: str, sighting: Sighting, process: Process, *, brief: bool) -> Found:
        return self.counts.count(process, device, sighting.bytes, self.policy, brief=brief)

    @staticmethod
    def _same(one: Process | None, other: Process | None) -> bool:
        return bool(one and other and (one.pid, one.start) == (other.pid, other.start))

    def _end(self, now: int, device: str, pid: int, who: Who, actions: list[Action]) -> None:
        """A stray stays: end its step when its grace is over, once, and again after a while."""
        sighting = self.seen[device, pid]
        known = sighting.process
        assert known is not None
        step = known.step
        if (
            self.policy.action != "end"
            or answerable_job(known, self.policy) is None
            or sighting.elsewhere
        ):
            return
        if now - sighting.since < self.policy.grace_ns or step is None:
            return
        if step.name is None or step.name == EXTERN:
            return
        if now - self.ended.get(step, -AGAIN_NS) < AGAIN_NS:
            return
        process = who(pid)
        if process is None or (process.start, process.step) != (known.start, step):
            del self.seen[device, pid]  # another process has the pid now
            return
        if not process.interposed:
            self.ended = {s: at for s, at in self.ended.items() if now - at < AGAIN_NS}
            self.ended[step] = now
            actions.append(End(step, process))

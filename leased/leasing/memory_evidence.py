"""How much of the memory that processes report on a device counts: what NVML supports.

What cannot be moved keeps others from a device, so a process may not just say that it has
some. Fixed memory counts up to what NVML shows that the process has; what it says beyond
that counts as memory that can be moved: honest processes ask so for room that they need.
What a process that swaps says is there changes faster than NVML is asked, so it is believed
until NVML has contradicted it several times in succession; from then on the job is believed
up to what NVML shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from leased.wire.device_bytes import DeviceBytes

FRESH_NS = 2_000_000_000  # what NVML said longer ago is no witness
AGAINST = 3  # contradictions in succession
NOTHING = DeviceBytes()


def sum_of(amounts: Iterable[DeviceBytes]) -> DeviceBytes:
    return DeviceBytes(*map(sum, zip(NOTHING, *amounts, strict=True)))


class Says(Protocol):
    """A client."""

    memory: dict[str, DeviceBytes]

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True)
class Look:
    """One process when NVML was asked, in bytes: what NVML showed, what it said that it has
    there, and what of that can leave. against: looks up to this one in which that was too much."""

    seen: int
    said: int
    resident: int
    against: int = 0


class MemoryEvidence:
    """Of one device. Processes are told by pid; several clients may be of one."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.shown: Mapping[int, int] = {}
        self.at: int | None = None  # when, in ns
        self.sees = False  # NVML has shown a client: it means the same pids as we do
        self.looks: dict[int, Look] = {}

    def look(
        self, now: int, shown: Mapping[int, int], clients: Iterable[Says]
    ) -> dict[int, int | None]:
        """NVML shows so many bytes by pid. By pid of the clients: what it says that it has of
        them; None: that changes, so the two are not of one moment."""
        said: dict[int, DeviceBytes] = {}
        for client in clients:
            has = client.memory.get(self.uuid, NOTHING)
            said[client.pid] = sum_of([said.get(client.pid, NOTHING), has])
        self.shown, self.at = shown, now
        self.sees = self.sees or any(shown.get(pid) for pid in said)
        before, self.looks = self.looks, {}
        settled: dict[int, int | None] = {}
        for pid, has in said.items():
            own = has.fixed + has.resident
            last, look = before.get(pid), Look(shown.get(pid, 0), own, has.resident)
            same = last is not None and (last.seen, last.said) == (look.seen, look.said)
            settled[pid] = own if same else None
            if last is not None and self._contradicts(pid, last, look):
                look = replace(look, against=last.against + 1)
            self.looks[pid] = look
        return settled

    def _contradicts(self, pid: int, last: Look, look: Look) -> bool:
        """Even the less that it said is more than the most that NVML showed. Who brings memory
        in had at the last look no more than NVML shows now, who evicts no more than it
        showed then; so neither is wronged, however late NVML answers."""
        if not self.sees or self.shown.get(pid) == 0:  # there, and NVML does not say with what
            return False
        return min(last.resident, look.resident) > max(last.seen, look.seen)

    def doubts(self, pid: int) -> bool:
        """NVML has contradicted the process for a while."""
        look = self.looks.get(pid)
        return look is not None and look.against >= AGAINST

    def total(self, now: int, clients: Iterable[Says], doubted: bool) -> DeviceBytes:
        """What a job's processes have together, as far as it is believed."""
        knows = self.sees and self.at is not None and now - self.at < FRESH_NS
        left: dict[int, int] = {}
        evictable = fixed = resident = 0
        for client in clients:
            has = client.memory.get(self.uuid, NOTHING)
            real = has
            if knows and self.shown.get(client.pid) != 0:
                most = left.get(client.pid, self.shown.get(client.pid, 0))
                real = self._real(has, most, doubted)
                left[client.pid] = most - real.fixed - (real.resident if doubted else 0)
            evictable += real.evictable
            fixed += real.fixed
            resident += real.resident
        return DeviceBytes(evictable, fixed, resident)

    @staticmethod
    def _real(has: DeviceBytes, most: int, doubted: bool) -> DeviceBytes:
        """Of a process that has at most so many bytes on the device."""
        fixed = min(has.fixed, most)
        there = min(has.resident, most - fixed) if doubted else has.resident
        return DeviceBytes(has.evictable + has.fixed - fixed, fixed, there)

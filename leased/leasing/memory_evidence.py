"""How much of the memory that processes report on a device counts: what NVML confirms.

Fixed memory keeps other jobs from a device, so the word of a process is not enough for it. Fixed
memory counts up to what NVML shows for the process. What the process reports beyond that counts
as memory that can be moved: honest processes report so the room that they need. The resident
memory of a process that swaps changes faster than NVML is polled, so it is believed until NVML
has contradicted it AGAINST times in succession. From then on the job is believed only up to what
NVML shows. A process that is stopped cannot report what it has evicted just before: as long as it
is, what NVML shows counts, and it has not lied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from leased.leasing.tenant import Client
from leased.wire.device_bytes import DeviceBytes

FRESH_NS = 2_000_000_000  # what NVML said longer ago confirms nothing
AGAINST = 3  # contradictions in succession
ASKED = 4  # processes in one look of which it is found out whether they are stopped
NOTHING = DeviceBytes()


def sum_of(amounts: Iterable[DeviceBytes]) -> DeviceBytes:
    return DeviceBytes(*map(sum, zip(NOTHING, *amounts)))


@dataclass(frozen=True)
class Look:
    """One process at one poll of NVML, in bytes.

    seen: what NVML showed. said: what the process reported on the device. resident: how much of
    that can be evicted. against: how many polls in succession, this one too, contradicted it.
    stopped: this one did, but the process cannot report.
    """

    seen: int
    said: int
    resident: int
    against: int = 0
    stopped: bool = False


class MemoryEvidence:
    """The evidence on one device, by pid. Several clients may be of one process.

    still: whether the process of a pid cannot act.
    """

    def __init__(self, uuid: str, still: Callable[[int], bool]) -> None:
        self.uuid = uuid
        self.still = still
        self.shown: Mapping[int, int] = {}
        self.at: int | None = None  # when, in ns
        self.sees = False  # NVML has shown a client, so its pids are those of our namespace
        self.looks: dict[int, Look] = {}
        self.agrees = False  # NVML and the processes say the same as at the poll before

    def look(
        self, now: int, shown: Mapping[int, int], clients: Iterable[Client]
    ) -> dict[int, int | None]:
        """One poll. shown: bytes by pid, as NVML shows them.

        Returns, by pid of the clients, the bytes that the process has reported; None: they have
        changed since the last poll, so they may not be of the same moment as NVML's.
        """
        said: dict[int, DeviceBytes] = {}
        for client in clients:
            has = client.memory.get(self.uuid, NOTHING)
            said[client.pid] = sum_of([said.get(client.pid, NOTHING), has])
        self.shown, self.at = shown, now
        self.sees = self.sees or any(shown.get(pid) for pid in said)
        before, self.looks = self.looks, {}
        settled: dict[int, int | None] = {}
        left = ASKED
        for pid, has in said.items():
            own = has.fixed + has.resident
            last, look = before.get(pid), Look(shown.get(pid, 0), own, has.resident)
            same = last is not None and (last.seen, last.said) == (look.seen, look.said)
            settled[pid] = own if same else None
            if last is not None and self._contradicts(pid, last, look):
                # Of further ones only what NVML shows counts either, and they are not doubted.
                stopped = not left or self.still(pid)
                left -= left > 0
                look = replace(look, against=last.against + (not stopped), stopped=stopped)
            self.looks[pid] = look
        doubts = any(look.against or look.stopped for look in self.looks.values())
        self.agrees = not doubts and None not in settled.values()
        return settled

    def says_the_same(self, now: int, shown: Mapping[int, int]) -> bool:
        """One poll, if it shows what the last one did, which had agreed with the processes. They
        have said nothing else since. Then nothing follows from it."""
        if shown != self.shown or not self.agrees:
            return False
        self.at = now
        return True

    def _contradicts(self, pid: int, last: Look, look: Look) -> bool:
        """Whether NVML contradicts what the process has reported in this poll and the last one.

        It does where the lower report is above the higher of NVML's figures. A process that
        restores had at the last poll no more than NVML shows now, and one that evicts has now no
        more than NVML showed then. So both are believed, however late NVML answers.
        """
        if not self.sees or self.shown.get(pid) == 0:  # it is shown, and its bytes are not known
            return False
        return min(last.resident, look.resident) > max(last.seen, look.seen)

    def doubts(self, pid: int) -> bool:
        """Whether NVML has contradicted the process AGAINST times in succession."""
        look = self.looks.get(pid)
        return look is not None and look.against >= AGAINST

    def _counts_as_shown(self, pid: int) -> bool:
        """Whether NVML contradicts what a process that is stopped has said last."""
        look = self.looks.get(pid)
        return look is not None and look.stopped

    def total(
        self, now: int, clients: Iterable[Client], doubted: bool, most: int | None = None
    ) -> DeviceBytes:
        """What a job's processes have together on the device, as far as it is believed. most: the
        bytes that the job may have there; more is not believed unless NVML confirms it."""
        knows = self.sees and self.at is not None and now - self.at < FRESH_NS
        left: dict[int, int] = {}
        evictable = fixed = said = resident = 0
        for client in clients:
            has = client.memory.get(self.uuid, NOTHING)
            real = has
            if knows and self.shown.get(client.pid) != 0:
                shown = left.get(client.pid, self.shown.get(client.pid, 0))
                bounded = doubted or self._counts_as_shown(client.pid)
                real = self._real(has, shown, bounded)
                left[client.pid] = shown - real.fixed - (real.resident if bounded else 0)
                fixed += real.fixed
            else:
                said += real.fixed
            evictable += real.evictable
            resident += real.resident
        if most is not None:
            evictable, said = min(evictable, most), min(said, most)
        return DeviceBytes(evictable, fixed + said, min(resident, evictable))

    @staticmethod
    def _real(has: DeviceBytes, most: int, doubted: bool) -> DeviceBytes:
        """What counts for a process that has, as NVML shows, `most` bytes on the device."""
        fixed = min(has.fixed, most)
        there = min(has.resident, most - fixed) if doubted else has.resident
        return DeviceBytes(has.evictable + has.fixed - fixed, fixed, there)

"""What one step of a job holds, waits for and has, as sums over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from leased.leasing.tenant import Client
from leased.memory.memory_time import MemoryTime
from leased.usage.step_usage import StepUsage
from leased.usage.usage import KIB_MS, Usage
from leased.wire.device_bytes import DeviceBytes


@dataclass
class Seen:
    """A process of a step as it was last seen. waits_since: ns; None: it does not wait at its
    gate."""

    step: StepClock
    holds: bool = False
    waits_since: int | None = None
    memory: Mapping[str, DeviceBytes] = field(default_factory=dict)


@dataclass
class Amounts:
    """Memory of the step on one device. time: wanted and resident bytes over time, of managed
    memory only the wanted. peak: the most wanted at once."""

    wanted: int = 0
    resident: int = 0
    peak: int = 0
    time: MemoryTime = field(default_factory=MemoryTime)


@dataclass
class StepClock:
    """One step. number: of the step among those of its job. at: until when it is added up (ns).

    since, until: see StepUsage. usage: by device, as far as it is divided. time_ns, wait_ns,
    grants, overruns: since then. grants: those for which a process of it had waited longest.
    """

    number: int
    at: int
    since: float
    until: float
    usage: dict[str, Usage] = field(default_factory=dict)
    clients: dict[Client, Seen] = field(default_factory=dict)
    memory: dict[str, Amounts] = field(default_factory=dict)
    holding: int = 0  # processes
    waiting: int = 0
    waited_at: int = 0  # until when waiting is added up
    time_ns: int = 0
    wait_ns: int = 0
    grants: int = 0
    overruns: int = 0
    told: StepUsage | None = None  # its usage as it was last asked for

    def advance(self, now: int) -> None:
        """Add up the time until now, in which nothing has changed."""
        passed, self.at = now - self.at, now
        self.time_ns += passed if self.clients else 0
        self._count_waiting(0, now)
        for has in self.memory.values():
            has.time.advance_wanted(now, has.wanted)
            has.time.advance_there(now, has.resident, idle=False)

    def came(self, client: Client, now: int) -> Seen:
        """A process of it has connected."""
        self.advance(now)
        seen = self.clients[client] = Seen(self)
        return seen

    def see(self, client: Client, seen: Seen, now: int) -> bool:
        """Note what the process waits for, holds and has now. Returns whether the step has begun or
        ended to hold the lease with that."""
        holds, waited = client.held != 0, seen.waits_since is not None
        if (client.wants and not holds) != waited:
            self._count_waiting(-1 if waited else 1, now)
            seen.waits_since = None if waited else now
        if seen.memory is not client.memory:
            self._note_memory(seen, client.memory, now)
        if seen.holds == holds:
            return False
        seen.holds = holds
        self.holding += 1 if holds else -1
        return self.holding == holds  # it is the first one, or was the last one

    def gone(self, client: Client, now: int) -> None:
        """The connection of a process has ended."""
        self.advance(now)
        seen = self.clients.pop(client)
        self.holding -= seen.holds
        if seen.waits_since is not None:
            self._count_waiting(-1, now)
        self._note_memory(seen, {}, now)

    def _count_waiting(self, more: int, now: int) -> None:
        """So many more processes wait from now on."""
        if self.waiting:
            self.wait_ns += now - self.waited_at
        self.waited_at = now
        self.waiting += more

    def _note_memory(self, seen: Seen, memory: Mapping[str, DeviceBytes], now: int) -> None:
        before, seen.memory = seen.memory, memory
        if memory == before:
            return
        self.advance(now)
        for uuid in {*before, *memory}:
            had, has = before.get(uuid, DeviceBytes()), memory.get(uuid, DeviceBytes())
            amounts = self.memory.get(uuid)
            if amounts is None:
                amounts = self.memory[uuid] = Amounts(time=MemoryTime.since(self.at))
            amounts.wanted += has.evictable + has.fixed - had.evictable - had.fixed
            amounts.resident += has.resident + has.fixed - had.resident - had.fixed
            amounts.peak = max(amounts.peak, amounts.wanted)

    @property
    def longest_wait(self) -> int | None:
        """When the wait of the process began that has waited longest; None: no process waits."""
        waits = (s.waits_since for s in self.clients.values() if s.waits_since is not None)
        return min(waits, default=None)

    def of(self, uuid: str) -> Usage:
        """The step's usage of a device, to be added to."""
        return self.usage.setdefault(uuid, Usage())

    def count_own(self, devices: Iterable[str], swaps: bool) -> None:
        """Add the figures that are the step's own, and not divided, to its usage of the devices."""
        for uuid in devices:
            usage, has = self.of(uuid), self.memory.get(uuid)
            usage.time_ns += self.time_ns
            usage.wait_ns += self.wait_ns
            if has is not None:
                usage.peak_bytes = max(usage.peak_bytes, has.peak)
                if swaps:
                    usage.peak_resident_bytes = max(usage.peak_resident_bytes, has.time.peak)

    def note_resident(self, uuid: str, before: int) -> None:
        """Of managed memory: the most that was resident is what was on average of one division.

        before: what its resident memory over time was before it.
        """
        used = self.of(uuid)
        if self.time_ns:
            mean = (used.resident_kib_ms - before) * KIB_MS // self.time_ns
            used.peak_resident_bytes = min(max(used.peak_resident_bytes, mean), used.peak_bytes)

    def begin_again(self) -> None:
        """Begin to add up anew: what was added up so far is in the usage."""
        self.time_ns = self.wait_ns = self.grants = self.overruns = 0
        for has in self.memory.values():
            has.time = MemoryTime.since(self.at)
            has.peak = has.wanted

    @property
    def is_recent(self) -> bool:
        """Whether it has processes, or had some since the usage was last divided."""
        return bool(self.clients or self.time_ns)

    def snapshot(self, active: bool = True) -> StepUsage:
        """Its usage as it is now; the same object as before where nothing has changed.

        active: it may have changed."""
        told = self.told
        if told is None or (active and (told.until, told.usage) != (self.until, self.usage)):
            usage = {uuid: used.copy() for uuid, used in self.usage.items()}
            self.told = told = StepUsage(self.since, self.until, usage)
        return told

"""What the arbiter knows of tenants and devices. Times are ns of one monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.core.actions import Grant
from leased.memory.residency import Residency
from leased.memory.share import Place
from leased.usage.gauge import Gauge, Reading
from leased.usage.handoff_times import HandoffTimes
from leased.usage.lease_clock import LeaseClock
from leased.usage.usage import Usage

FOREVER = 1 << 63
# What a tenant heeds. Two may hold one device at once if either is FREE or both SHARE.
FREE, SHARE, ALONE = range(3)
FIRST_CALM_NS = 1_000_000_000
MOST_CALM_NS = 64_000_000_000
CALM_AGAIN = 16  # side by side for so many times as long, and the next change is a new one


@dataclass(frozen=True)
class Kept:
    """The place in the line that is kept for a tenant, and how much of its quantum is over.

    until: when it must have asked for a lease again. See short_turns.py.
    """

    place: Place
    ran_ns: int = 0
    until: int = FOREVER


class Lease:
    """A granted lease. since: start of its quantum. due: when its next stage begins.

    The stages: nobody waits (no due), contended (due: its revoke), revoked (due:
    it has overrun), overrun_at is set (due: it is forfeited).
    """

    contended: bool = False
    for_limit: bool = False  # contended for its own limit's sake, so any waiter is news to it
    restoring: bool = False  # its memory is on the way; the quantum has not begun
    revoked: bool = False
    revoked_at: int = 0
    overrun_at: int | None = None  # when it should have released
    due: int | None = None
    moves_ns: int = 0  # how long moving memory took, or takes, when it was granted
    # While contended: the first who waits for it and what its handoff costs; debt taken off this
    # quantum; when it must be gone for those whom it must not hold up.
    waiter: int | None = None
    cost_ns: int = 0
    paid_ns: int = 0
    until: int = FOREVER
    # short: the short turn of a waiter that has handled a signal. kept: for its tenant once it is
    # over. ran_ns: so much of its quantum was over when it was interrupted for a short turn.
    short: bool = False
    kept: Kept | None = None
    ran_ns: int = 0
    joined: bool = False  # its quantum began with another's, see chains.py
    # Its handoffs, until its holder can begin to work: the devices by the time since when.
    handed: dict[int, list[str]]
    # What its holder is told once others' memory has left; None: it has been told.
    untold: Grant | None = None

    def __init__(self, epoch: int, now: int):
        self.epoch = epoch
        self.since = self.granted_at = now
        self.moved_at = now  # when memory last came back for it
        self.handed = {}

    @property
    def can_join(self) -> bool:
        """A process of its tenant may join it: it has been told of, and has not been revoked."""
        return not self.revoked and self.untold is None

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for it to end."""
        return self.contended and not self.for_limit

    @property
    def revoke_at(self) -> int | None:
        """When it will be revoked; None: nobody waits, or it has been."""
        return None if self.revoked else self.due


@dataclass(frozen=True)
class Parking:
    """Why a tenant's memory is off its devices; see the event Parked. before: if it is
    suspended, its earlier parking, which it returns to when it goes on."""

    since: int
    by: str
    suspended: bool
    before: Parking | None = None


@dataclass(eq=False)
class Tenant:
    """devices: of its gang, in that order; mask: the same, as bits. heeds: FREE, SHARE or ALONE."""

    id: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int
    swaps: bool = False
    request: float = 0.0
    limit: float = 1.0
    job: str = ""  # as squeue shows it
    online: bool = False  # of that class, see classes.py
    offline: bool = False
    ordered: str = ""  # what others have ordered, see orders.py; "": it takes leases by itself
    chain: str = ""  # what it is a part of, see chains.py; "": of none
    lingers: bool = False  # its memory counts as held, for others of its chain
    devices: tuple[Device, ...] = ()
    mask: int = 0
    heeds: int = ALONE
    wider: tuple[str, ...] = ()  # the gang of its next lease, where that is another
    arrival: int = 0  # since when it has waited and could run: a number that grows
    order: int = 0  # what its policy last said of its place
    place: Place | None = None  # among those who wait and could run
    late: int | None = None  # until then the gap before it is open once more
    barred_until: int | None = None  # it waits, and its policy lets it have its devices then
    waiting: bool = False
    hurries: bool = False  # its next lease is a short turn, see short_turns.py
    short_at: int | None = None  # when it last began to hurry
    short_left: int = 0  # how many it may have for its last signal, and until when it asks for them
    short_until: int = 0
    kept: Kept | None = None
    controlled: bool = False  # time slices of the GPU can divide its work from that of others
    has_asked: bool = False  # it has waited for its gang or held it, so it may hold it
    granted: int = 0  # the epoch of its last lease
    unserved: bool = False  # that lease ended since its memory did not come back
    lease: Lease | None = None
    # Forfeited leases that it has not released yet, by epoch, and when it should have; None: it
    # cannot act. A process of it holds each.
    forfeited: dict[int, int | None] = field(default_factory=dict)
    frozen: bool = False  # its processes cannot act
    parked: Parking | None = None
    departs: bool = False  # all its memory was told to leave, and has not
    debt_ns: int = 0  # by how much it overran; taken off its next quanta
    waits_since: int = 0  # or since its usage was settled
    waited_ns: int = 0  # before that, and not in its usage yet
    asked_at: int = 0  # when it began to wait
    seen_at: int = 0  # until when its time is in its usage
    usage: dict[str, Usage] = field(default_factory=dict)
    # What the device's meter stood at when last taken over into the usage.
    read: dict[str, Reading] = field(default_factory=dict)

    @property
    def held(self) -> Lease:
        """The lease of a tenant that holds one."""
        assert self.lease is not None
        return self.lease

    @property
    def barred(self) -> bool:
        return self.barred_until is not None

    @property
    def urgent(self) -> bool:
        """It is online, and is not one that could not use its last lease."""
        return self.online and not self.unserved

    @property
    def uncontrolled(self) -> bool:
        """It has wanted its gang, and time slices cannot divide its work."""
        return self.has_asked and not self.controlled

    @property
    def has_share(self) -> bool:
        return self.request > 0 or self.limit < 1

    @property
    def sliced(self) -> bool:
        """Time slices of the GPU keep its share now."""
        return self.heeds == SHARE and self.has_share

    @property
    def epoch(self) -> int:
        """The epoch of the lease that it holds, else 0."""
        return self.lease.epoch if self.lease else 0

    @property
    def runs(self) -> bool:
        """Whether it holds a lease and has been told of it."""
        return self.lease is not None and self.lease.untold is None

    @property
    def state(self) -> str:
        """In one word: holds, parked, waits or idle."""
        if self.lease:
            return "holds"
        if self.parked:
            return "parked"
        return "waits" if self.waiting else "idle"

    @property
    def since(self) -> int | None:
        """When its quantum, its parking or its wait began; None: it is idle."""
        if self.lease:
            return self.lease.since
        if self.parked:
            return self.parked.since
        return self.asked_at if self.waiting else None

    @property
    def on_gpu(self) -> bool:
        """Whether it has memory on one of its devices that can be moved."""
        return any(device.residency.evictable(self.id) for device in self.devices)

    def wait_ends(self, now: int) -> None:
        """The tenant no longer waits."""
        self.waited_ns += now - self.waits_since
        self.waiting = False

    def settle(self, now: int, devices: Mapping[str, Device]) -> None:
        """Take the time of the meters and of its waiting into its usage."""
        read = self._run_up(self.usage, now, devices)
        self.seen_at, self.waits_since, self.waited_ns = now, now, 0
        self.read.update(read)

    def settle_memory(self, devices: Mapping[str, Device]) -> None:
        """Take its memory over time into its usage, before its devices are others or forget it."""
        for uuid in self.gang:
            devices[uuid].residency.settle_memory_time(self.id, self.usage[uuid])

    def usage_at(self, now: int, devices: Mapping[str, Device]) -> dict[str, Usage]:
        """A copy of its usage, brought up to now."""
        usage = {uuid: used.copy() for uuid, used in self.usage.items()}
        self._run_up(usage, now, devices)
        for uuid in self.gang:
            devices[uuid].residency.memory_time(self.id, now).add_to(usage[uuid])
        return usage

    def _run_up(
        self, usage: Mapping[str, Usage], now: int, devices: Mapping[str, Device]
    ) -> dict[str, Reading]:
        """Add the time that is not in the usage yet. Returns what the meters of the devices that
        it holds show."""
        passed, holds = now - self.seen_at, self.lease is not None
        waited = self.waited_ns + (now - self.waits_since if self.waiting else 0)
        read = {}
        for uuid in self.gang:
            used = usage[uuid]
            used.time_ns += passed
            used.wait_ns += waited
            if holds:
                device = devices[uuid]
                before = self.read[uuid]
                read[uuid] = each, shared, _ = device.clock.reading(now)
                used.lease_ns += each - before[0]
                used.shared_ns += shared - before[1]
        return read


@dataclass(eq=False)
class Device:
    """bit: of masks. line: those that wait for it, heed locks and could run, by their places."""

    uuid: str
    bit: int
    residency: Residency
    clock: LeaseClock
    gauge: Gauge = field(default_factory=Gauge)
    lock: str | None = None
    quantum_ns: int | None = None
    drained: bool = False
    fits: bool = True  # as decided; memory may fit again, and be waited for to stay so
    fits_since: int = 0
    calm_ns: int = 0  # how long that is; 0 before holders were ever separated
    separated_at: int | None = None
    last_holder: int | None = None
    given_up_at: int = 0  # when that was revoked, or else released the device
    handoff_times: HandoffTimes = field(default_factory=HandoffTimes)
    holders: dict[int, Tenant] = field(default_factory=dict)
    line: list[tuple[Place, Tenant]] = field(default_factory=list)
    restoring: set[int] = field(default_factory=set)  # of the holders those whose memory comes back

    def first_against(self, holder: Tenant) -> tuple[Place, Tenant] | None:
        """The first in the line that this holder, which is not FREE, is in the way of."""
        entries = self.line
        if holder.heeds == ALONE:
            return entries[0] if entries else None
        for entry in entries:
            if entry[1].heeds == ALONE:
                return entry
        return None

    def begin(self, tenant: Tenant, now: int) -> None:
        """The tenant holds the device from now on."""
        number, clock = tenant.id, self.clock
        clock.count(now, 1, tenant.heeds)
        shows = tenant.read[self.uuid] = clock.each, clock.shared, now
        self.gauge.begin(number, shows)
        self.holders[number] = tenant
        self.last_holder = number

    def end(self, tenant: Tenant, now: int, given_up_at: int) -> None:
        """The tenant does not hold the device any more, which was free for others then."""
        number, uuid, clock = tenant.id, self.uuid, self.clock
        clock.count(now, -1, tenant.heeds)
        each, shared = clock.each, clock.shared
        self.gauge.end(number, (each, shared, now))
        before, used = tenant.read[uuid], tenant.usage[uuid]
        used.lease_ns += each - before[0]
        used.shared_ns += shared - before[1]
        del self.holders[number]
        if self.restoring:
            self.restoring.discard(number)
        self.last_holder, self.given_up_at = number, given_up_at

    @property
    def mode(self) -> str:
        """How tenants with lock auto use the device now, in one word; `why` has the reason."""
        if self.drained:
            return "draining" if self.holders else "drained"
        if self.lock == "off" or (self.lock != "on" and self.fits):
            return "shared"
        return "exclusive"

    @property
    def why(self) -> str:
        if self.drained:
            return "set by the site: no new lease until it is resumed"
        if self.lock in ("on", "off"):
            return f"set by the site: lock {self.lock}"
        if not self.residency.fits():
            return "the jobs' memory does not fit together"
        if not self.fits:
            return "the jobs' memory fits again; this waits for it to stay so"
        return "the jobs' memory fits together"

    def note_separation(self, now: int) -> None:
        """The device is used by turns again; if it was side by side only briefly, for longer."""
        if self.separated_at is None or self.separated_at < self.fits_since:
            short = now - self.fits_since < CALM_AGAIN * self.calm_ns
            self.calm_ns = min(2 * self.calm_ns, MOST_CALM_NS) if short else FIRST_CALM_NS
        self.separated_at = now

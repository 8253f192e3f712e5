"""A node of the adversary's: the arbiter, the daemon's part around it, processes, devices, time."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from leased import policy
from leased.core import actions, events
from leased.core.arbiter import Arbiter
from leased.sim.lease import OPEN
from leased.sim.timeline import Timeline
from tests.core import departing, lying, measuring, ordering
from tests.core.client import MS, Client, Memory
from tests.core.judge import Judge
from tests.core.scenario import ABOUT_JOBS, CAPACITY, LIE, LOCKS, SIGNAL, WORK, Job, Poke, Scenario

S = 1_000_000_000
SEES_NS = S // 2  # after which the daemon notices that a job is frozen
AGAIN_NS = S  # after which a job whose process died has another one
EPOCH_MARGIN = 1000
SAME_TIME = 10_000


@dataclass
class Entry:
    """What the daemon knows of a job, as Leases does."""

    client: Client
    heard: bool = True  # its process has said HELLO to this daemon
    held: int = 0
    passed: int = 0  # the epoch of a lease that it has lost and not given back
    wants: bool = False
    memory: Memory = field(default_factory=dict)
    evictions: dict[int, int] = field(default_factory=dict)
    leaves: bool = False  # all that it has is to leave
    idle_ns: int | None = None


class World:
    """Runs a scenario; Broken (see judge.py) where a rule does not hold."""

    def __init__(
        self,
        scenario: Scenario,
        most_events: int = 1500,
        began: Callable[[Arbiter], None] = lambda _: None,
        handled: Callable[[int, events.Event, list[actions.Action]], None] = lambda *_: None,
        policy_name: str = policy.DEFAULT,
        *,
        judge: Callable[[World], Judge] = Judge,
    ):
        """began: is told of every new arbiter; handled: of every event that one has taken."""
        self.policies = {f"d{d}": policy_name for d in range(scenario.devices)}
        self.sees_ns = SEES_NS
        self.liars = lying.liars(scenario)
        self.began, self.handled = began, handled
        self.scenario = scenario
        self.most_events = most_events
        self.timeline = Timeline()
        self.events = 0
        self.daemon = 0  # its number: those before it hear nothing any more
        self.room = dict.fromkeys(range(scenario.devices), CAPACITY)
        self.a = Arbiter({f"d{n}": CAPACITY for n in self.room}, policy.make)
        began(self.a)
        self.entries: dict[int, Entry] = {}
        self.conductors: dict[int, ordering.Conductor] = {}
        self.measured_at: dict[str, int] = {}
        self.open_gates = dict.fromkeys(self.room, 0)
        self._queue: deque[events.Event] = deque()
        self._busy = False
        self.judge = judge(self)
        self.set_policies()

    def set_policies(self) -> None:
        for uuid, name in self.policies.items():
            if name != policy.DEFAULT:
                self.do(events.PolicySet(uuid, name))

    # -- time -----------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.timeline.now

    def run(self) -> None:
        """Until the scenario's end, or until there have been so many events."""
        end = self.scenario.seconds * S
        for n in range(len(self.scenario.jobs)):
            self.timeline.at(self.scenario.jobs[n].opens * MS, functools.partial(self.open, n))
        for poke in self.scenario.pokes:
            self.timeline.at(poke.at * MS, functools.partial(self.poke, poke))
        same = 0
        asked: tuple[Arbiter, int] | None = None  # and nothing has happened to it since
        while self.events < self.most_events:
            if asked is None or asked[0] is not self.a or asked[1] != self.events:
                asked, due = (self.a, self.events), self.a.next_deadline()
            first = self.timeline.first()
            soonest = end + 1 if due is None else due
            if first is not None and first < soonest:
                soonest = first
            if soonest > end:
                self.timeline.now = max(self.now, end)
                self.judge.look()
                break
            same = same + 1 if soonest <= self.now else 0
            if same > SAME_TIME:
                self.judge.broken(f"no time passes: something is due at {soonest} for ever")
            if first is not None and first <= max(self.now, soonest):
                self.timeline.step()
            else:
                self.timeline.now = max(self.now, soonest)
                self.do(events.Tick())
        self.finish()

    def finish(self) -> None:
        """Everybody goes; nothing of them is left."""
        for tenant in list(self.entries):
            self.close(tenant)
        while (due := self.a.next_deadline()) is not None:
            self.timeline.now = max(self.now, due)
            self.do(events.Tick())
        self.judge.nothing_left()

    # -- devices --------------------------------------------------------------------

    def free(self, d: int) -> int:
        """GiB that nobody has. A hundredth is kept free; managed memory makes room by itself."""
        used = sum(
            e.client.resident[d] + e.client.fixed[d]
            for e in self.entries.values()
            if d in e.client.resident
        )
        return self.room[d] + self.room[d] // 100 - used

    def look_at_devices(self) -> None:
        """What processes have that the daemon has not heard of counts as taken, as NVML says."""
        for d, room in self.room.items():
            clients = [e.client for e in self.entries.values() if not e.heard]
            unknown = sum(c.resident.get(d, 0) + c.fixed.get(d, 0) for c in clients)
            left = max(0, room - unknown)
            if self.a.devices[f"d{d}"].residency.room != left:
                self.do(events.RoomChanged(f"d{d}", left))

    def room_freed(self, d: int) -> None:
        for entry in list(self.entries.values()):
            client = entry.client
            if d in client.resident and client.alive and not client.frozen and not client.moving:
                client.go_on()

    def gates_changed(self, gang: tuple[int, ...]) -> None:
        for d in gang:
            self.open_gates[d] = sum(
                e.client.gate == OPEN and e.client.alive and not e.client.frozen
                for e in self.entries.values()
                if d in e.client.resident
            )
            if self.open_gates[d]:
                self.judge.computes(d)

    # -- the daemon -----------------------------------------------------------------

    def do(self, *events: events.Event) -> None:
        self._queue.extend(events)
        if self._busy:
            return
        self._busy = True
        while self._queue:
            event = self._queue.popleft()
            self.events += 1
            actions = self.a.handle(event, self.now)
            self.handled(self.now, event, actions)
            self.judge.saw(event, actions)
            for action in actions:
                self.perform(action)
            if not self._queue:
                self.judge.look()
        self._busy = False

    def perform(self, action: actions.Action) -> None:
        entry = self.entries.get(action.tenant)
        if entry is None:
            return
        client = entry.client
        if isinstance(action, actions.Grant):
            entry.evictions.clear()
            entry.leaves = False
            entry.idle_ns = action.idle_ns
            if not entry.wants and not client.job.ordered:
                self._queue.append(events.Released(action.tenant, action.epoch))
                return
            if entry.wants:
                entry.wants, entry.held = False, action.epoch
                self.give(entry, action.epoch)
        elif isinstance(action, actions.Revoke):
            self.revoke(entry, action)
        elif isinstance(action, actions.Answer):
            self.conductors[action.tenant].answered(action.answer)
        elif isinstance(action, actions.PassedOver):
            entry.passed, entry.held = entry.held, 0
            if entry.wants:
                self._queue.append(events.Requested(action.tenant))
        elif isinstance(action, actions.Contend):
            entry.idle_ns = action.idle_ns
            if entry.held:
                self.tell(client, lambda: client.contended(action.epoch, action.idle_ns))
        else:
            self.order_memory(entry, action)

    def revoke(self, entry: Entry, action: actions.Revoke) -> None:
        client = entry.client
        if entry.held:
            self.tell(client, lambda: client.revoked(action.epoch))
        else:
            self._queue.append(events.Released(action.tenant, action.epoch))

    def order_memory(self, entry: Entry, action: actions.Action) -> None:
        """What it is told to do with its memory."""
        client = entry.client
        if isinstance(action, actions.Evict):
            d = int(action.device[1:])
            entry.evictions[d] = entry.evictions.get(d, 0) + action.bytes
            self.tell_evictions(entry)
        elif isinstance(action, actions.Leave):
            entry.evictions.clear()
            entry.leaves = True
            self.tell_evictions(entry)
        elif isinstance(action, actions.Preload):
            d = int(action.device[1:])
            self.tell(client, lambda: client.preload(d, action.bytes))

    def give(self, entry: Entry, epoch: int) -> None:
        client, idle_ns = entry.client, entry.idle_ns
        self.tell(client, lambda: client.granted(epoch, idle_ns))

    def tell(self, client: Client, take: Callable[[], None]) -> None:
        client.after(client.job.delay * MS, take)

    def tell_evictions(self, entry: Entry) -> None:
        if entry.held or entry.passed:
            return
        if entry.leaves:
            entry.leaves = False
            self.tell(entry.client, entry.client.leave)
        evictions, entry.evictions = entry.evictions, {}
        for d, amount in evictions.items():
            self.tell(entry.client, functools.partial(entry.client.evict, d, amount))

    def entry(self, client: Client) -> Entry | None:
        """Of a process that the daemon knows."""
        entry = self.entries.get(client.tenant)
        return entry if entry and entry.client is client and entry.heard else None

    def hear_hello(
        self,
        client: Client,
        epoch: int,
        wants: bool,
        memory: Memory,
    ) -> None:
        entry = self.entries.get(client.tenant)
        if entry is None or entry.client is not client:
            return
        entry.heard = True
        if self.a.rules.grace_until and (epoch or memory):
            self.do(events.CameBack())
        self.hear_memory(client, memory)
        self.look_at_devices()
        if epoch:
            entry.held = epoch
            if self.a.tenants[client.tenant].lease is None:
                self.do(events.Adopted(client.tenant, epoch))
            lease = self.a.tenants[client.tenant].lease
            if lease is None or lease.epoch != epoch or lease.revoked:
                self.tell(client, lambda: client.revoked(epoch))
        if wants:
            self.hear_request(client)

    def hear_memory(self, client: Client, memory: Memory) -> None:
        entry = self.entry(client)
        if entry is None or entry.memory == memory:
            return
        entry.memory = memory
        for d, amounts in memory.items():
            self.do(events.MemoryChanged(client.tenant, f"d{d}", *amounts))

    def hear_request(self, client: Client) -> None:
        entry = self.entry(client)
        if entry is None:
            return
        entry.wants = True
        lease = self.a.tenants[client.tenant].lease
        if lease is None:
            self.do(events.Requested(client.tenant))
        elif not lease.revoked and lease.untold is None:
            entry.wants, entry.held = False, lease.epoch
            self.give(entry, lease.epoch)
        if entry.wants and client.tenant in self.conductors:
            self.conductors[client.tenant].wants()

    def hear_released(self, client: Client, epoch: int, wants: bool) -> None:
        entry = self.entry(client)
        if entry is not None and epoch and epoch == entry.passed:
            entry.passed = 0
            self.tell_evictions(entry)
            if wants:
                self.hear_request(client)
        if entry is None or entry.held != epoch:
            return
        entry.held = 0
        entry.wants |= wants
        self.released(client.tenant, epoch)

    def released(self, tenant: int, epoch: int) -> None:
        entry = self.entries[tenant]
        entry.idle_ns = None
        self.tell_evictions(entry)
        self.do(events.Released(tenant, epoch))
        if entry.wants:
            self.do(events.Requested(tenant))

    def hear_restored(self, client: Client, epoch: int) -> None:
        entry = self.entry(client)
        if entry is not None and entry.held == epoch:
            self.do(events.Restored(client.tenant, epoch))

    # -- what happens to it -----------------------------------------------------------

    def open(self, n: int) -> None:
        job = self.scenario.jobs[n]
        self.do(self.opened(n, job.gang, job))
        self.entries[n] = Entry(Client(self, n, job))
        if job.ordered:
            self.conductors[n] = ordering.Conductor(self, n)
        self.entries[n].client.start()

    def opened(self, n: int, gang: tuple[int, ...], job: Job) -> events.Opened:
        """Without its share where that is refused."""
        uuids = tuple(f"d{d}" for d in gang)
        event = events.Opened(
            *(n, uuids, job.lock, job.quantum * MS, job.swaps),
            request=job.request,
            limit=job.limit,
            job_class=job.job_class,
            ordered=job.ordered,
            chain=job.chain,
        )
        if self.a.refusal(event) is None and self.a.lacks_share(event) is None:
            return event
        return replace(event, request=0.0, limit=1.0)

    def close(self, tenant: int) -> None:
        """The job ends, and whatever runs of it."""
        entry = self.entries[tenant]
        entry.client.end_process()
        del self.entries[tenant]
        self.conductors.pop(tenant, None)
        self.do(events.Closed(tenant))

    def die(self, tenant: int) -> None:
        """Its process ends; the job goes on with another one."""
        entry = self.entries[tenant]
        before, held = entry.client, entry.held
        before.end_process()
        entry.heard, entry.held, entry.wants, entry.memory = False, 0, False, {}
        entry.passed, entry.leaves = 0, False
        for d in before.gang:
            resident = 0 if before.job.swaps else None
            self.do(events.MemoryChanged(tenant, f"d{d}", 0, 0, resident))
        if held:
            self.released(tenant, held)
        if before.suspended:  # of whom nobody is left
            self.timeline.after(SEES_NS, lambda: self.do(events.Unparked(tenant)))

        def again() -> None:
            if self.entries.get(tenant) is entry and entry.client is before:
                entry.client = Client(self, tenant, replace(before.job, gang=before.gang))
                entry.heard = True
                entry.client.start()
                self.timeline.after(SEES_NS, functools.partial(self.see, entry.client))

        self.timeline.after(AGAIN_NS, again)

    def poke(self, poke: Poke) -> None:
        if poke.what == "restart":
            self.restart()
        elif poke.what == WORK:
            self.measure_work(f"d{poke.who}", poke.amount)
        elif poke.what not in ABOUT_JOBS:
            self.set(f"d{poke.who}", poke)
        elif (entry := self.entries.get(poke.who)) is not None:
            if poke.what == "close":
                self.close(poke.who)
            elif poke.what == "die":
                self.die(poke.who)
            elif poke.what in ("stop", "freeze", "thaw"):
                self.freeze(entry, poke.what)
            elif poke.what == "park":
                departing.park(self, poke.who)
            elif poke.what == "unpark":
                departing.unpark(self, poke.who)
            elif poke.what == "suspend":
                departing.suspend(self, entry, poke.amount)
            elif poke.what == LIE:
                lying.lie(self, entry.client, poke.amount)
            else:
                self.change(entry.client, poke)

    def freeze(self, entry: Entry, how: str) -> None:
        """stop: nobody tells the daemon."""
        client = entry.client
        if how == "thaw":
            if client.suspended:
                departing.resume(self, client, 0)
            client.thaw()
        else:
            client.frozen = True
            self.gates_changed(client.gang)
        if how != "stop":
            self.timeline.after(SEES_NS, lambda: self.see(client))

    def see(self, client: Client) -> None:
        """The daemon looks whether a job can act."""
        if self.entry(client) is not None:
            event = events.Frozen if client.frozen else events.Thawed
            self.do(event(client.tenant))

    def change(self, client: Client, poke: Poke) -> None:
        if not client.alive or client.frozen:
            return
        d = client.gang[poke.amount % len(client.gang)]
        if poke.what == SIGNAL:
            self.do(events.Signalled(client.tenant))
        elif poke.what == "size":
            client.resize(d, poke.amount)
        elif poke.what == "fixed":
            client.set_fixed(d, poke.amount if poke.amount % 3 else 0)
        elif poke.what == "hang":
            client.hangs = True
        elif poke.what == "finish":
            client.hangs = False
            client.drained()
        elif poke.what == "widen":
            self.widen(client, poke.amount % self.scenario.devices)

    def widen(self, client: Client, d: int) -> None:
        """Another step of the job uses one more device."""
        if d in client.gang:
            return
        client.widen(d)
        self.do(events.Widened(client.tenant, tuple(f"d{n}" for n in client.gang)))

    def measure_work(self, device: str, amount: int) -> None:
        passed = self.now - self.measured_at.get(device, 0)
        if passed:
            self.measured_at[device] = self.now
            self.do(measuring.measured(self.a, device, amount, passed))

    def set(self, device: str, poke: Poke) -> None:
        amount = poke.amount
        if poke.what == "lock":
            lock = LOCKS[amount % 4]
            self.do(events.LockSet(device, None if lock == "none" else lock))
        elif poke.what == "quantum":
            self.do(events.QuantumSet(device, None if amount % 3 == 0 else amount * 100 * MS))
        elif poke.what == "channels":
            for tenant in [t.id for t in self.a.tenants.values() if device in t.gang]:
                self.do(events.Channels(tenant, (amount >> tenant % 4) % 2 == 0))
        elif poke.what == "policy":
            names = policy.names()
            self.policies[device] = names[amount % len(names)]
            self.do(events.PolicySet(device, self.policies[device]))
        elif poke.what == "room":
            self.room[poke.who] = 80 + amount % 21
            self.look_at_devices()
        else:
            self.do(events.DrainSet(device, poke.what == "drain"))

    def restart(self) -> None:
        """The daemon is killed; the connections are kept, each process is asked for its state."""
        self.daemon += 1
        self.measured_at.clear()
        epoch = self.a.epoch + EPOCH_MARGIN
        rooms = {f"d{d}": room for d, room in self.room.items()}
        self.a = Arbiter(
            rooms, policy.make, first_epoch=epoch, now=self.now, grace_until=self.now + S
        )
        self.began(self.a)
        self.judge.restarted()
        self.set_policies()
        self.timeline.after(SEES_NS, self.look_at_devices)
        for tenant, entry in self.entries.items():
            client = entry.client
            self.do(self.opened(tenant, client.gang, client.job))
            self.entries[tenant] = Entry(client, heard=False)
            if tenant in self.conductors:
                self.conductors[tenant].restarted()
            if client.alive:
                self.tell(client, client.resync)
                if client.frozen:
                    self.timeline.after(SEES_NS, functools.partial(self.see, client))
                found = functools.partial(departing.found_again, self, client)
                self.timeline.after(SEES_NS, found)

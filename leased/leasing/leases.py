"""Tenants and their clients: carries events to the arbiter and its actions to the processes."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from _gpulease import lib

from leased.connections.limits import credible
from leased.core import arbiter
from leased.core.arbiter import Arbiter, Usage
from leased.gpus.devices import NOT_SLURMS, Gpu, Overhead, room
from leased.leasing.memory_reports import Reports
from leased.wire import wire

log = logging.getLogger("gpu-leased")

NOTHING = wire.Bytes()
ENDED = "the job of this process has ended"
TURN_PART = 10
SILENCE_S = 0.1  # after a revoke, before a process is taken for stuck


def _there(has: wire.Bytes) -> int:
    return has.resident


def _lacks(has: wire.Bytes) -> int:
    return max(0, has.evictable - has.resident)


class Client(Protocol):
    """One process of a tenant, as its connection shows it."""

    wants: bool
    held: int  # epoch of the lease it holds, else 0
    passed: int  # of one that its job has lost meanwhile, and that it has not given back, else 0
    restoring: bool  # its memory is on the way back
    stuck: bool  # what it has submitted does not finish
    answered: bool  # it has released since the lease was revoked
    memory: dict[str, wire.Bytes]
    calls: tuple[int, int] | None  # gated calls that it has made, and when it said so (ns)

    @property
    def pid(self) -> int: ...

    def send(self, message: bytes) -> None: ...


@dataclass
class Tenant:
    """One job on this node. totals: bytes the job sees on each device of its gang."""

    job_id: int
    uid: int
    options: str
    lock: str
    quantum_ns: int
    oversub: bool
    totals: Mapping[str, int]
    swaps: bool = False
    clients: list[Client] = field(default_factory=list)
    evictions: dict[str, int] = field(default_factory=dict)  # to be told when it has released
    idle_ns: int | None = None  # what the holder was told while contended, else None
    doubted: bool = False  # what its processes say of their memory was not so
    weighed: dict[str, wire.Bytes] = field(default_factory=dict)  # of it, as last believed
    stepped: bool = False  # some were let on by a call each since the revoke

    def __post_init__(self) -> None:
        self.gang = tuple(self.totals)


class Leases:
    """All tenants of the node. Not thread-safe; `clock` gives monotonic ns."""

    def __init__(
        self,
        gpus: list[Gpu],
        clock: Callable[[], int],
        *,
        first_epoch: int = 1,
        grace_ns: int = 0,
        in_flight_ns: int = 0,
        drain_ns: int = arbiter.DRAIN_NS,
    ):
        self.gpus = gpus
        self.clock = clock
        self.tenants: dict[int, Tenant] = {}
        now = clock()
        self.arbiter = Arbiter(
            {gpu.uuid: room(gpu, 0) for gpu in gpus},
            *(first_epoch, now, now + grace_ns if grace_ns else 0, drain_ns),
        )
        self.in_flight_ns = in_flight_ns
        self.overheads = {gpu.uuid: Overhead.of(gpu) for gpu in gpus}
        self.reports = Reports(self.overheads, clock, self.run)
        self.names_jobs = True  # may users see the numbers of others' jobs?
        self.faults: dict[str, str] = {}  # by device: what NVML says against it
        self.events: deque[arbiter.Event] = deque()
        self.busy = False
        self.on_deadline: Callable[[], None] = lambda: None
        # Calls a function after so many seconds; the daemon's loop does it.
        self.later: Callable[[float, Callable[[], None]], object] = lambda _, __: None
        # Called with a tenant that has overrun; again, with True, when it is passed over for it.
        self.on_overrun: Callable[[Tenant, bool], None] = lambda _, __: None
        for gpu in gpus:
            self._set_speeds(gpu)

    # -- events -----------------------------------------------------------------

    def run(self, *events: arbiter.Event) -> None:
        """Handle events and all that follows from them."""
        self.events.extend(events)
        if self.busy:
            return  # the outer call goes on with them
        self.busy = True
        try:
            while self.events:
                for action in self.arbiter.handle(self.events.popleft(), self.clock()):
                    self._perform(action)
        finally:
            self.busy = False
        self.on_deadline()

    def open(self, tenant: Tenant, usage: Mapping[str, Usage] | None = None) -> None:
        """A tenant begins, or goes on after a restart with the usage it had."""
        self.tenants[tenant.job_id] = tenant
        self.run(
            arbiter.Opened(
                tenant.job_id, tenant.gang, tenant.lock, tenant.quantum_ns, tenant.swaps
            ),
        )
        for uuid, used in (usage or {}).items():
            self.run(arbiter.UsageRestored(tenant.job_id, uuid, asdict(used)))

    def close(self, job_id: int) -> dict[str, Usage]:
        """The tenant is over: its usage. Processes that are left have no lease any more."""
        usage = self.arbiter.usage(job_id, self.clock())
        tenant = self.tenants.pop(job_id)
        for client in list(tenant.clients):
            client.send(wire.refused(lib.GL_REFUSED_NO_TENANT, ENDED))
        self.run(arbiter.Closed(job_id))
        return usage

    def usage(self, jobs: Collection[int] | None = None) -> dict[int, dict[str, Usage]]:
        """Usage up to now of all tenants, or of these."""
        now, tenants = self.clock(), self.arbiter.tenants
        chosen = tenants if jobs is None else [job_id for job_id in jobs if job_id in tenants]
        return {job_id: self.arbiter.usage(job_id, now) for job_id in chosen}

    # -- clients ----------------------------------------------------------------

    def attach(self, tenant: Tenant, client: Client, hello: wire.Hello) -> None:
        """A process said HELLO: greet it, take over what it says of itself."""
        tenant.clients.append(client)
        client.send(self._welcome(tenant))
        client.memory = hello.memory
        if any(c.memory for c in tenant.clients):
            self.reports.changed(tenant)
        if hello.held_epoch:
            self._adopt(tenant, client, hello.held_epoch)
        if hello.wants:
            self.request(tenant, client)

    def _welcome(self, tenant: Tenant) -> bytes:
        return wire.welcome(wire.Gang(tenant.job_id, tenant.oversub, tenant.totals, tenant.swaps))

    def _adopt(self, tenant: Tenant, client: Client, epoch: int) -> None:
        """It says that it holds a lease of before. The device may be another's by now."""
        client.held = epoch
        state = self.arbiter.tenants[tenant.job_id]
        if state.lease is None:
            self.run(arbiter.Adopted(tenant.job_id, epoch))
            # What one process of the job holds, the others that wait hold with it.
            for other in [c for c in tenant.clients if c.wants and state.lease]:
                self.request(tenant, other)
        if state.lease is None or state.lease.epoch != epoch or state.lease.revoked:
            client.answered = False
            client.send(wire.revoke(epoch, self.arbiter.drain_ns))

    def request(self, tenant: Tenant, client: Client) -> None:
        """A thread of the process waits at its gate."""
        client.wants = True
        state = self.arbiter.tenants[tenant.job_id]
        lease = state.lease
        if lease is None:
            self.run(arbiter.Requested(tenant.job_id))
        elif not lease.revoked:
            quantum = self.arbiter.quantum(state, 0)
            shared = self.arbiter.can_share(state)
            self._give(
                client,
                arbiter.Grant(tenant.job_id, lease.epoch, shared, quantum, {}, tenant.idle_ns),
            )
        # A revoked lease ends soon; the request is made again then.

    def released(self, tenant: Tenant, client: Client, message: wire.Released) -> None:
        """The process has closed its gate and drained."""
        if message.epoch and message.epoch == client.passed:
            self._released_late(tenant, client, message)
            return
        if message.epoch != client.held:
            return
        client.held, client.stuck, client.answered = 0, False, True
        self._measured(tenant, message.prefetch_bytes, message.prefetch_ns)
        client.wants |= message.wants
        self._check_released(tenant, message.epoch)

    def _released_late(self, tenant: Tenant, client: Client, message: wire.Released) -> None:
        """It can act again, and gives back what others have had since."""
        client.passed = 0
        self._tell_evictions(tenant)
        if message.wants:
            self.request(tenant, client)

    def restored(self, tenant: Tenant, client: Client, message: wire.Restored) -> None:
        """All of the process' memory is back."""
        if message.epoch != client.held:
            return
        client.restoring = False
        self._measured(tenant, message.bytes, message.ns)
        if not any(c.restoring and c.held for c in tenant.clients):
            self.run(arbiter.Restored(tenant.job_id, message.epoch))

    def _measured(self, tenant: Tenant, size: int, ns: int) -> None:
        """A process says that so many bytes came to the devices of its gang together."""
        if not size or not credible(size, ns):
            return
        part = size // len(tenant.gang)
        self.run(*(arbiter.SpeedMeasured(tenant.job_id, uuid, part, ns) for uuid in tenant.gang))

    def stuck(self, tenant: Tenant, client: Client, message: wire.Stuck) -> None:
        """What the process submitted may wait for work of another one of its job."""
        if message.epoch == client.held:
            client.stuck = True
            self._step(tenant, message.epoch)

    def _presume_stuck(self, tenant: Tenant, epoch: int) -> None:
        """Who has not answered a revoke for so long may be stuck in the driver itself."""
        for client in tenant.clients:
            client.stuck |= client.held == epoch and not client.answered
        if self.tenants.get(tenant.job_id) is tenant:
            self._step(tenant, epoch)

    def _step(self, tenant: Tenant, epoch: int) -> bool:
        """While one of a revoked tenant is stuck, those that are through may submit one call
        each and drain again. No one ever runs ahead of the slowest by more than a call, so
        collectives find a point where all have submitted the same ones."""
        lease = self.arbiter.tenants[tenant.job_id].lease
        if lease is None or lease.epoch != epoch or not lease.revoked:
            return False
        if not any(c.held and c.stuck for c in tenant.clients):
            return False
        through = [c for c in tenant.clients if not c.held and not c.passed]
        tenant.stepped = tenant.stepped or bool(through)
        for other in through:
            other.held = epoch
            other.send(wire.step(epoch))
        return bool(through)

    def progress(self, _: Tenant, client: Client, message: wire.Progress) -> None:
        client.calls = message.calls, self.clock()

    def measure(self, uuid: str) -> None:
        """Ask the processes that hold the device how far they are; see Client.calls."""
        for tenant in self.tenants_of(uuid):
            for client in tenant.clients:
                client.calls = None
                client.send(wire.MEASURE)

    def slurms(self) -> list[Gpu]:
        """The devices that Slurm gives to jobs, by its index."""
        found = [gpu for gpu in self.gpus if gpu.index != NOT_SLURMS]
        return sorted(found, key=lambda gpu: gpu.index)

    def gpu(self, uuid: str) -> Gpu:
        return next(gpu for gpu in self.gpus if gpu.uuid == uuid)

    def widen(self, tenant: Tenant, totals: Mapping[str, int]) -> None:
        """Another step of the job uses further devices: they are of its gang from now on."""
        tenant.totals = {**tenant.totals, **totals}
        tenant.gang = tuple(tenant.totals)
        for client in list(tenant.clients):
            client.send(self._welcome(tenant))
        self.run(arbiter.Widened(tenant.job_id, tenant.gang))

    def set_reserve(self, uuid: str, reserve: int | None) -> None:
        """Keep so many bytes of the device for contexts from now on; None: as measured."""
        self.set_gpu(replace(self.gpu(uuid), reserve=reserve))

    def set_gpu(self, gpu: Gpu) -> None:
        """The device has other settings from now on; what its link showed stays known."""
        index = self.gpus.index(self.gpu(gpu.uuid))
        before, self.gpus[index] = self.gpus[index], gpu
        if gpu == before:
            return
        if gpu.link != before.link:
            self._set_speeds(gpu)
        self._set_room(gpu)

    def _set_speeds(self, gpu: Gpu) -> None:
        for speed, swaps in ((gpu.link, True), (gpu.paging, False)):
            known = arbiter.SpeedKnown(gpu.uuid, swaps, speed.bytes_s, speed.seen, speed.said)
            self.run(known)

    def memory(self, tenant: Tenant, client: Client, message: wire.Memory) -> None:
        if client.memory != message.memory:
            client.memory = message.memory
            self.reports.changed(tenant)

    def detach(self, tenant: Tenant, client: Client) -> None:
        """The connection ended: what the process held and had is free."""
        if client not in tenant.clients:
            return
        tenant.clients.remove(client)
        if self.tenants.get(tenant.job_id) is not tenant:
            return
        held, client.held, client.stuck = client.held, 0, False
        if client.memory:
            client.memory = {}
            self.reports.changed(tenant)
        if held:
            self._check_released(tenant, held)

    def _check_released(self, tenant: Tenant, epoch: int) -> None:
        if self._step(tenant, epoch):
            return
        if any(c.held for c in tenant.clients):
            lease = self.arbiter.tenants[tenant.job_id].lease
            if tenant.stepped and lease and not any(c.stuck for c in tenant.clients):
                # Nobody needs the steps any more that some may still take.
                self._tell(tenant, wire.revoke(epoch, self.arbiter.drain_ns))
            return
        tenant.idle_ns, tenant.stepped = None, False
        self._tell_evictions(tenant)
        self.run(arbiter.Released(tenant.job_id, epoch))
        if any(c.wants for c in tenant.clients):
            self.run(arbiter.Requested(tenant.job_id))

    def tenants_of(self, uuid: str) -> list[Tenant]:
        """Those whose gang has the device."""
        return [tenant for tenant in self.tenants.values() if uuid in tenant.gang]

    def measured(self, gpu: Gpu, processes: Mapping[int, int]) -> None:
        """What NVML says that each process has, by pid."""
        self.reports.measured(gpu.uuid, processes, self.tenants_of(gpu.uuid))
        self._set_room(gpu)

    def _set_room(self, gpu: Gpu) -> None:
        left = room(gpu, self.overheads[gpu.uuid].taken)
        if left != self.arbiter.devices[gpu.uuid].residency.room:
            self.run(arbiter.RoomChanged(gpu.uuid, left))

    # -- actions ----------------------------------------------------------------

    def _perform(self, action: arbiter.Action) -> None:
        tenant = self.tenants.get(action.tenant)
        if tenant is None:
            return
        if isinstance(action, arbiter.Grant):
            self._granted(tenant, action)
        elif isinstance(action, arbiter.Restore):
            grant = arbiter.Grant(
                *(action.tenant, action.epoch, False, action.quantum_ns, action.prefetch),
                tenant.idle_ns,
            )
            self._tell(tenant, self._grant(grant, restore=True))
        elif isinstance(action, arbiter.Evict):
            before = tenant.evictions.get(action.device, 0)
            tenant.evictions[action.device] = before + action.bytes
            self._tell_evictions(tenant)
        elif isinstance(action, arbiter.Preload):
            self._divide(tenant, {action.device: action.bytes}, _lacks, wire.preload)
        elif isinstance(action, arbiter.Expect):
            self._divide(tenant, {action.device: action.bytes}, _there, wire.expect)
        elif isinstance(action, arbiter.Contend):
            tenant.idle_ns = action.idle_ns
            ahead = self._in_flight(action.tenant)
            self._tell(tenant, wire.contended(action.epoch, action.idle_ns, ahead))
        elif isinstance(action, arbiter.Revoke):
            self._revoked(tenant, action)
        elif isinstance(action, arbiter.PassedOver):
            self._passed_over(tenant, action)
        else:
            self._overrun(tenant, action)

    def _granted(self, tenant: Tenant, grant: arbiter.Grant) -> None:
        tenant.idle_ns = grant.idle_ns
        tenant.evictions.clear()  # what it was to give up it needs now
        wanting = [c for c in tenant.clients if c.wants]
        message = self._grant(grant)
        for client in wanting:
            client.wants, client.held, client.restoring = False, grant.epoch, tenant.swaps
            client.send(message)
        if not wanting:  # whoever asked is gone
            self.events.append(arbiter.Released(grant.tenant, grant.epoch))

    def _revoked(self, tenant: Tenant, revoke: arbiter.Revoke) -> None:
        for client in tenant.clients:
            client.answered = False
        self._tell(tenant, wire.revoke(revoke.epoch, revoke.drain_ns))
        if len(tenant.clients) > 1:
            self.later(SILENCE_S, functools.partial(self._presume_stuck, tenant, revoke.epoch))
        if not any(c.held for c in tenant.clients):
            self.events.append(arbiter.Released(revoke.tenant, revoke.epoch))

    def _passed_over(self, tenant: Tenant, action: arbiter.PassedOver) -> None:
        """Those that still hold the lease cannot act. They have been told to release it, and do
        when they can; others of the job need not wait for that."""
        tenant.idle_ns, tenant.stepped = None, False
        for client in tenant.clients:
            if client.held == action.epoch:
                client.held, client.passed = 0, action.epoch
                client.stuck = client.restoring = False
        log.info(
            "job %d (uid %d) cannot act and others wait: its GPUs go to them",
            *(tenant.job_id, tenant.uid),
        )
        if any(client.wants for client in tenant.clients):
            self.events.append(arbiter.Requested(tenant.job_id))

    def _tell_evictions(self, tenant: Tenant) -> None:
        """Its processes share what must leave; none that still holds a lease can do it."""
        if any(client.held or client.passed for client in tenant.clients):
            return
        evictions, tenant.evictions = tenant.evictions, {}
        self._divide(tenant, evictions, _there, wire.evict)

    def _divide(
        self,
        tenant: Tenant,
        amounts: Mapping[str, int],
        part: Callable[[wire.Bytes], int],
        message: Callable[[Mapping[str, int]], bytes],
    ) -> None:
        """Its processes share what is said of the tenant's memory, each at most its part."""
        left = dict(amounts)
        for client in list(tenant.clients):
            mine = {uuid: min(left[uuid], part(client.memory.get(uuid, NOTHING))) for uuid in left}
            for uuid in left:
                left[uuid] -= mine[uuid]
            if any(mine.values()):
                client.send(message(mine))

    def _overrun(self, tenant: Tenant, action: arbiter.Overrun | arbiter.Forfeit) -> None:
        forfeit = isinstance(action, arbiter.Forfeit)
        log.warning(
            "job %d (uid %d) has not released its lease %d within %g s of its revoke%s",
            *(tenant.job_id, tenant.uid, action.epoch),
            self.arbiter.drain_ns * (2 if forfeit else 1) / 1e9,
            ": the next in the queue gets its GPUs" if forfeit else "",
        )
        if forfeit:
            tenant.idle_ns = None
        self.on_overrun(tenant, forfeit)

    def _give(self, client: Client, grant: arbiter.Grant) -> None:
        client.wants, client.held = False, grant.epoch
        client.send(self._grant(grant))

    def _grant(self, grant: arbiter.Grant, *, restore: bool = False) -> bytes:
        return wire.grant(
            *(grant.epoch, grant.quantum_ns, grant.shared, grant.prefetch),
            idle_ns=grant.idle_ns,
            in_flight_ns=self._in_flight(grant.tenant) if grant.idle_ns is not None else 0,
            restore=restore,
        )

    def _in_flight(self, job_id: int) -> int:
        """Work that a holder may have submitted ahead while somebody waits: where turns are
        short because nothing has to move, a part of one."""
        turn = self.arbiter.turn_ns(self.arbiter.tenants[job_id])
        return self.in_flight_ns if turn is None else min(self.in_flight_ns, turn // TURN_PART)

    def _tell(self, tenant: Tenant, message: bytes) -> None:
        for client in list(tenant.clients):
            if client.held:
                client.send(message)

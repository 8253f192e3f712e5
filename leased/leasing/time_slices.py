"""The GPU's time slices of the node's jobs: what NVML and processes say of their work goes in, RUN
messages come out.

leased/classes decides, and leased/slices where no job is online. A process is told what is chosen
for its job when that changes, and once at first, since a former daemon may have told it something
else; but not once it has said that its channel groups cannot be controlled.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from _gpulease import lib

from leased.chains.shares import slices as slices_of
from leased.classes.controller import Classed, Controller
from leased.classes.pulse import Work
from leased.config.options import OFFLINE, ONLINE
from leased.core.events import Channels
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.registry import Registry
from leased.leasing.tenant import Busy, Client, Tenant
from leased.slices.job import ALWAYS, LONG_US, Choice, Seen, as_made
from leased.slices.unfinished import parts as parts_of
from leased.wire import client_messages, daemon_messages

PATIENCE_NS = 2_000_000_000  # NVML may say nothing for so long: some cards have a sample a second
NO_LEASE = "it holds no lease"
IN_CHAIN = "its chain divides the GPU among its components"


@dataclass
class DeviceSlices:
    """What is known of one device. controller: chooses for the jobs there; None: nobody has been
    looked at yet. silent_since: since when neither NVML nor all processes there have said whose
    work it does; None: one has.
    asked: when the processes there were last asked for theirs. told: what the arbiter was last told
    of its tenants by. used: by job, the part of it that the job had at the last look. divided:
    where a chain divides it, the time slice of each of its processes, by pid (us)."""

    controller: Controller | None = None
    silent_since: int | None = None
    asked: int | None = None
    told: tuple[bool, frozenset[int], tuple[int, ...]] | None = None
    used: Mapping[int, float] = field(default_factory=dict)
    divided: Mapping[int, int] = field(default_factory=dict)

    def is_known(self, now: int) -> bool:
        """Whether it is said whose work it does, or was a moment ago."""
        return self.silent_since is None or now - self.silent_since < PATIENCE_NS

    def chosen(self, job_id: int) -> Choice:
        """What the job's groups there have now."""
        if self.divided:
            return as_made(IN_CHAIN)
        found = self.controller.chosen.get(job_id) if self.controller else None
        return as_made(NO_LEASE) if found is None else found


@dataclass
class TimeSlices:
    """devices: by UUID. slowdown: of online jobs that is allowed. by: see Controller."""

    loop: ArbiterLoop
    registry: Registry
    slowdown: float = 0.05
    by: str = "feedback"

    def __post_init__(self) -> None:
        self.devices = {d.state.uuid: DeviceSlices() for d in self.loop.view.devices()}

    # -- what happens --------------------------------------------------------------------

    def measured(
        self, uuid: str, busy: int | None, work: Mapping[int, int], clock: float = 1.0
    ) -> None:
        """NVML has been polled. busy: percent; None: it does not say. work: by pid, as
        nvml_answers.Seen has it. clock: as a part of the highest."""
        tenants, now, device = self.registry.sharing(uuid), self.loop.clock(), self.devices[uuid]
        if not tenants:
            device.controller, device.used, device.silent_since = None, {}, None
            self._ask(device, [], now)
            return
        there = self.loop.view.device(uuid).state.holders
        holders = [tenant for tenant in tenants if tenant.job_id in there] if there else []
        parts = _parts(tenants, busy, work)
        said = self._ask(device, holders, now)
        parts = self._unfinished(device, tenants, holders, said) or parts
        if parts is not None or (holders and len(said) == len(holders)):
            device.silent_since = None
        elif device.silent_since is None:
            device.silent_since = now
        if parts is not None or device.silent_since is None or not device.is_known(now):
            self._look(uuid, now, parts or {}, said, ((busy or 0) / 100, clock))
            self._tell_news(device, now, tenants)

    def _tell_news(self, device: DeviceSlices, now: int, tenants: list[Tenant]) -> None:
        """Tell the arbiter of a device's tenants, where that may be something else than before."""
        caught = device.controller.slices.obedience.caught if device.controller else ()
        jobs = tuple(tenant.job_id for tenant in tenants)
        known = device.is_known(now), frozenset(caught), jobs
        if device.told != known:
            device.told = known
            for tenant in tenants:
                self._tell_arbiter(tenant)

    def granted(self, tenant: Tenant) -> None:
        """The tenant holds a lease from now on, and is about to be told. Beside an online job
        slices are right before its first kernel; else its neighbours have the driver's own until it
        is known what it does."""
        for uuid in tenant.gang:
            controller = self.devices[uuid].controller
            chosen = controller.chosen if controller else {}
            if tenant.job_id in chosen:
                continue
            divides = chosen and any(c.runs != as_made("").runs for c in chosen.values())
            if divides or (self.loop.arbiter.rules.online and self._holds_online(uuid)):
                self._look(uuid, self.loop.clock(), {}, {})

    def _holds_online(self, uuid: str) -> bool:
        """Whether an online job holds a lease on the device."""
        there = self.registry.sharing(uuid)
        return any(one.given.job_class == ONLINE and self._holds(one) for one in there)

    def came(self, tenant: Tenant) -> None:
        """A process of the tenant has connected. Until it says that its groups cannot be controlled
        it is taken for one whose groups can be."""
        self._tell_arbiter(tenant)

    def said(self, tenant: Tenant, client: Client, message: client_messages.Channels) -> None:
        """A process says whether its channel groups can be controlled."""
        client.channels = message
        self._tell(tenant, client)
        self._tell_arbiter(tenant)

    def rests(self, tenant: Tenant, client: Client, rests: bool) -> None:
        """A process of an online job does not work any more, or again. What is cut of offline jobs
        for it is theirs meanwhile."""
        if client.rests == rests:
            return
        client.rests = rests
        for uuid in tenant.gang:
            for one in self._cut(uuid):
                for process in list(one.clients):
                    self._tell(one, process)

    def gone(self, tenant: Tenant) -> None:
        """A process of the tenant is gone."""
        if self.registry.has(tenant):
            self._tell_arbiter(tenant)

    def apply(self, uuid: str, division: Mapping[int, int]) -> None:
        """Keep the processes of a chain to a division (leased/chains/shares.py) by time slices."""
        device, divided = self.devices[uuid], slices_of(division)
        if divided == device.divided:
            return
        device.divided = divided
        for tenant in self.registry.sharing(uuid):
            for client in list(tenant.clients):
                self._tell(tenant, client)

    def _ask(self, device: DeviceSlices, holders: list[Tenant], now: int) -> dict[int, Busy]:
        """By job that holds a lease, what its processes have said of their work since they were
        asked, unless one has said nothing. They are asked again."""
        asked, device.asked = now if device.asked is None else device.asked, now
        if len(holders) < 2 and not any(t.given.limit < 1 for t in holders):
            return {}
        found = {}
        for tenant in holders:
            tenant.tell_holders(daemon_messages.MEASURE)
            said = [client.busy for client in tenant.clients if client.held]
            works = [work for work in said if work and work.at >= asked]
            if len(works) == len(said):
                unfinished = max((work.unfinished for work in works), default=0.0)
                wanted = max((work.wanted for work in works), default=0.0)
                found[tenant.job_id] = Busy(unfinished, wanted, now)
        return found

    def _unfinished(
        self,
        device: DeviceSlices,
        tenants: list[Tenant],
        holders: list[Tenant],
        said: Mapping[int, Busy],
    ) -> dict[int, float] | None:
        """By job, the part of the device that it has, by what its processes say of their work.
        None: some have not said it, or one job is alone."""
        if len(holders) < 2 or len(said) < len(holders):
            return None
        known = {job: work.unfinished for job, work in said.items()}
        processes = {t.job_id: _processes(t) for t in holders}
        favored = {job for job in known if device.chosen(job).slice_us == LONG_US}
        return dict.fromkeys((t.job_id for t in tenants), 0.0) | parts_of(known, processes, favored)

    def _holds(self, tenant: Tenant) -> bool:
        return self.loop.view.lease(tenant.job_id) is not None

    # -- what is known -------------------------------------------------------------------

    def chosen(self, job_id: int, uuid: str) -> Choice:
        """What the job's groups on the device have now."""
        return self.devices[uuid].chosen(job_id)

    def disobeys(self, tenant: Tenant) -> bool:
        """Whether the tenant does not do what was chosen for it."""
        there = [self.devices[uuid].controller for uuid in tenant.gang]
        return any(one is not None and one.disobeys(tenant.job_id) for one in there)

    def slowdown_of(self, uuid: str) -> float | None:
        """By how much online jobs on the device take longer than alone; None: not known."""
        controller = self.devices[uuid].controller
        return controller.slowdown if controller else None

    def excess_of(self, uuid: str) -> float | None:
        """By how much they surely do, in units of what is allowed."""
        controller = self.devices[uuid].controller
        return controller.excess if controller else None

    def used_by(self, jobs: list[int], uuid: str) -> float | None:
        """The part of the device that these had at the last look; None: not known."""
        used = self.devices[uuid].used
        return sum(used[job] for job in jobs) if all(job in used for job in jobs) else None

    def configure(self, slowdown: float, by: str) -> None:
        """What the site allows, from now on."""
        if (slowdown, by) != (self.slowdown, self.by):
            self.slowdown, self.by = slowdown, by
            for device in self.devices.values():
                device.controller = None

    # -- what follows --------------------------------------------------------------------

    def _cut(self, uuid: str) -> list[Tenant]:
        """Those whose duty is cut for online jobs on the device."""
        return [one for one in self.registry.sharing(uuid) if self._is_cut(one, uuid)]

    def _is_cut(self, tenant: Tenant, uuid: str) -> bool:
        offline = tenant.given.job_class == OFFLINE
        return offline and self.chosen(tenant.job_id, uuid).duty < ALWAYS

    def _online_rest(self, uuid: str) -> bool:
        """Whether no process of an online job works on the device."""
        there = self.registry.sharing(uuid)
        online = [one for one in there if one.given.job_class == ONLINE and self._holds(one)]
        return all(client.rests for one in online for client in one.clients if client.held)

    def _watch(self, uuid: str) -> None:
        """Have online jobs say when they rest while offline ones are cut for them."""
        cut = self._cut(uuid)
        for one in self.registry.sharing(uuid):
            if one.given.job_class != ONLINE:
                continue
            if cut:
                one.tell_holders(daemon_messages.WATCH)
            for client in one.clients:
                client.rests = client.rests and bool(cut)

    def _look(
        self,
        uuid: str,
        now: int,
        parts: Mapping[int, float],
        said: Mapping[int, Busy],
        load: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """Choose again. parts: by job, what it had of the device; load: the part of the time in
        which the device worked, and its clock as a part of the highest."""
        device = self.devices[uuid]
        controller = device.controller or Controller(self.slowdown, self.by)
        device.controller, device.used = controller, parts
        matter = {*controller.chosen, *self.loop.view.device(uuid).state.holders}
        if not matter:
            return  # nobody holds it, and nobody did at the last look
        there = [tenant for tenant in self.registry.sharing(uuid) if tenant.job_id in matter]
        tenants = sorted(there, key=_place)
        before = {tenant.job_id: device.chosen(tenant.job_id) for tenant in tenants}
        jobs = {
            tenant.job_id: Classed(
                self._seen(tenant, parts.get(tenant.job_id), said.get(tenant.job_id)),
                tenant.given.job_class,
                _take_work(tenant),
            )
            for tenant in tenants
        }
        controller.look(now, jobs, *load)
        self._watch(uuid)
        for tenant in tenants:
            news = device.chosen(tenant.job_id).runs != before[tenant.job_id].runs
            news = news or self._is_cut(tenant, uuid)  # whether online jobs rest may have changed
            for client in list(tenant.clients):
                if news or uuid not in client.runs:
                    self._tell(tenant, client)

    def _seen(self, tenant: Tenant, part: float | None, said: Busy | None) -> Seen:
        """A share counts where slices keep it: by turns the arbiter does."""
        state, given = self.loop.view.tenant(tenant.job_id), tenant.given
        return Seen(
            *(part, tenant.controlled, state.lease is not None),
            processes=_processes(tenant),
            request=given.request if state.sliced else 0.0,
            limit=given.limit if state.sliced else 1.0,
            wanted=said.wanted if said else None,
        )

    def _tell(self, tenant: Tenant, client: Client) -> None:
        """Tell a process what it has not been told yet. While processes come back after a restart
        it keeps what the daemon before wanted."""
        if self.loop.view.in_grace:
            return
        said = client.channels
        if said is not None and said.state == lib.GL_CHANNELS_REFUSED:
            client.runs = {}
            return
        for uuid in tenant.gang:
            now, divided = self.chosen(tenant.job_id, uuid), self.devices[uuid].divided
            now = now._replace(slice_us=divided.get(client.pid, now.slice_us))
            if self._is_cut(tenant, uuid) and self._online_rest(uuid):
                now = now._replace(duty=ALWAYS, copies=False)
            before, client.runs[uuid] = client.runs.get(uuid), now.runs
            if not before or now.slice_us != before[0]:
                client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, now.slice_us))
            if not before or now.runs[1:] != before[1:]:
                kind = lib.GL_RUN_DUTY_COPIES if now.copies else lib.GL_RUN_DUTY
                client.send(daemon_messages.run(uuid, kind, now.duty, now.begins, now.period_ms))

    def _tell_arbiter(self, tenant: Tenant) -> None:
        """Whether slices can divide the tenant's work from that of others."""
        state, now = self.loop.view.tenant(tenant.job_id), self.loop.clock()
        known = all(self.devices[uuid].is_known(now) for uuid in tenant.gang)
        controlled = tenant.controlled and known and not self.disobeys(tenant)
        if state.controlled != controlled:
            self.loop.run(Channels(tenant.job_id, controlled))


def _place(tenant: Tenant) -> tuple[int, int]:
    """The order of windows. Those of a job on several devices begin at the same time where it can:
    its kernels on one may wait for those on another."""
    return -len(tenant.gang), tenant.job_id


def _processes(tenant: Tenant) -> int:
    """How many use the tenant's devices: NVML does not know."""
    return max(1, sum(bool(client.held) for client in tenant.clients))


def _take_work(tenant: Tenant) -> Work | None:
    """What its processes have said of their work since this was last asked."""
    said = [client.work for client in tenant.clients if client.work is not None]
    for client in tenant.clients:
        client.work = None
    return functools.reduce(Work.plus, said) if said else None


def _pids(tenant: Tenant) -> set[int]:
    return {client.pid for client in tenant.clients}


def _parts(
    tenants: list[Tenant], busy: int | None, work: Mapping[int, int]
) -> dict[int, float] | None:
    """By job, the part of the time in which the device worked for it. None: NVML does not say.

    While a graph is stopped or waits, NVML may take the device for busy, but not its process.
    """
    total = sum(work.values())
    if busy is None or (busy and not total):
        return None
    if not total:
        return dict.fromkeys((tenant.job_id for tenant in tenants), 0.0)
    of_all = min(busy, total) / 100 / total
    return {t.job_id: of_all * sum(work.get(pid, 0) for pid in _pids(t)) for t in tenants}

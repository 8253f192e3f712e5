"""The parts that lease this node's GPUs to its tenants, put together."""

from __future__ import annotations

from collections.abc import Callable

from leased import policy
from leased.config.config import Config
from leased.copies.claim_desk import ClaimDesk
from leased.copies.claims import Claims, DeviceUse
from leased.copies.node_memory import NodeMemory
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.events import DrainLimitSet, Event
from leased.gpus.devices import Gpu, Overhead, room
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.chain_divisions import ChainDivisions
from leased.leasing.clients import Clients
from leased.leasing.grants import Grants
from leased.leasing.introductions import Introductions
from leased.leasing.memory_reports import MemoryReports
from leased.leasing.node_gpus import NodeGpus
from leased.leasing.registry import Registry
from leased.leasing.stuck_clients import StuckClients
from leased.leasing.tenant import Tenant
from leased.leasing.time_slices import TimeSlices
from leased.record.recorder import Recorder


class Leases:
    """tenants: they open and close. clients: their processes. gpus: what there is to lease.
    slices: the GPU's time slices. chains: how chains divide their GPUs. view: what the arbiter
    knows. loop: gives it events. `clock` gives monotonic ns."""

    def __init__(
        self,
        gpus: list[Gpu],
        clock: Callable[[], int],
        *,
        first_epoch: int = 1,
        grace_ns: int = 0,
        in_flight_ns: int = 0,
        drain_ns: int = DRAIN_NS,
        recorder: Recorder | None = None,
    ):
        now = clock()
        self.recorder = recorder or Recorder(lambda _: None)
        self.loop = ArbiterLoop(
            Arbiter(
                {gpu.uuid: room(gpu, 0) for gpu in gpus},
                policy.make,
                first_epoch=first_epoch,
                now=now,
                grace_until=now + grace_ns if grace_ns else 0,
                drain_ns=drain_ns,
            ),
            clock,
            self.recorder,
        )
        self.clock = clock
        self.view = self.loop.view
        self.tenants = Registry(self.loop)
        self.stuck = StuckClients(self.tenants, self.view, clock)
        self.slices = TimeSlices(self.loop, self.tenants)
        self.chains = ChainDivisions(self.loop, self.tenants, self.slices)
        self.grants = Grants(self.loop, self.tenants, self.stuck, self.slices, in_flight_ns)
        self.loop.perform = self.grants.perform
        overheads = {gpu.uuid: Overhead.of(gpu) for gpu in gpus}
        reports = MemoryReports(overheads, clock, self.run)
        self.clients = Clients(self.loop, self.tenants, self.grants, self.stuck, reports)
        self.gpus = NodeGpus(gpus, overheads, self.loop, self.tenants, reports)
        self.introductions = Introductions(clock, restarted=grace_ns > 0)
        self.copies: NodeMemory | None = None  # host memory for copies, once there is any
        self.claims: ClaimDesk | None = None
        self.names_jobs = True  # may users see the numbers of others' jobs?

    def use_limits(self, settings: Config) -> None:
        """What users see, which memory is copied, and how time is divided, from now on."""
        self.names_jobs = settings.holder_shown != "nothing"
        self.slices.configure(settings.online_slowdown, settings.classes.controller)
        self.tenants.cleans = settings.swap_clean

    def keep_copies(self, memory: NodeMemory, full: Callable[[], str]) -> None:
        """Offer the node's host memory for copies to clients from now on.

        full: limits.swap_full, what is done with a job that claims more than is left.
        """
        self.copies = memory
        claims = Claims(
            self._device_use,
            lambda job: self.tenants[job].swaps,
            lambda job, uuid: self.tenants[job].most_on(uuid),
        )
        self.claims = ClaimDesk(memory, claims, memory.loop, full)
        self.tenants.offers_host = lambda: memory.offered
        self.tenants.forget_claims = self.claims.forget
        self.claims.settled = lambda: not self.view.in_grace

    def allocation_waits(self, tenant: Tenant) -> bool:
        """Whether an allocation of the tenant waits for host memory for copies."""
        return self.claims is not None and tenant.job_id in self.claims.waiting

    def _device_use(self) -> dict[str, DeviceUse]:
        """By UUID, what the tenants have on the device."""
        found = {}
        for uuid in self.gpus.overheads:
            device = self.view.device(uuid)
            memory = {job: has for job, has in device.memory().items() if job in self.tenants}
            movable = {job: has.bytes for job, has in memory.items()}
            fixed = {job: has.fixed for job, has in memory.items()}
            found[uuid] = DeviceUse(device.residency.room, movable, fixed)
        return found

    def run(self, *events: Event) -> None:
        """Give the arbiter events, and do all that follows from them."""
        self.loop.run(*events)

    def configure(self, settings: Config) -> None:
        """Take the site's settings, also later ones."""
        self.grants.in_flight_ns = settings.in_flight_ns
        self.use_limits(settings)
        self.run(DrainLimitSet(settings.drain_ns))
        self.recorder.configure(settings.record, settings.record_most)

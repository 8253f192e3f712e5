"""The tenants of this node: they are opened, get further devices, and are closed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from _gpulease import lib

from leased.base import job_names
from leased.chains import membership
from leased.core.events import Closed, Opened, Parked, PolicyRestored, UsageRestored, Widened
from leased.core.policy import PolicyState
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.device_totals import DeviceTotals
from leased.leasing.step_ledger import StepLedger
from leased.leasing.tenant import Client, Elsewhere, Tenant
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage
from leased.wire import daemon_messages

NOT_ACROSS = "peers.port is not set in gpu-leased.toml"
ENDED = "the job of this process has ended"


class FinalUsage(NamedTuple):
    """What a tenant has had, by device, and each of its steps, by name."""

    usage: dict[str, Usage]
    steps: dict[str, StepUsage]


class Registry(dict[int, Tenant]):
    """All tenants, by job."""

    def __init__(self, loop: ArbiterLoop):
        self.loop = loop
        self.cleans = True  # limits.swap_clean: memory that equals its copy is not copied again
        # Whether the node has host memory for copies.
        self.offers_host: Callable[[], bool] = lambda: False
        # Called with each process of a tenant that closes: it claims no host memory any more.
        self.forget_claims: Callable[[Client], None] = lambda _: None
        # Called with a tenant of several nodes that opens, and with its job when it closes.
        self.on_joined: Callable[[Tenant], None] = lambda _: None
        self.on_left: Callable[[int], None] = lambda _: None
        # Why no job on these nodes can be here, and what one that is here does on the others.
        self.refuses_nodes: Callable[[tuple[str, ...]], str | None] = lambda _: NOT_ACROSS
        self.elsewhere: Callable[[Tenant], Elsewhere] = lambda _: Elsewhere(NOT_ACROSS, {})
        self.device_totals = DeviceTotals(loop.arbiter.devices)
        self.steps = StepLedger(loop.clock)
        # By UUID, the tenants that share a device, since they were last asked for.
        self._sharing: dict[str, list[Tenant]] = {}

    def named(self, asked: int | str) -> list[Tenant]:
        """Those that this means (leased/base/job_names.py), by their numbers."""
        found = self.values()
        meant = [tenant for tenant in found if job_names.means(asked, tenant.job_id, tenant.job)]
        return sorted(meant, key=lambda tenant: tenant.job_id)

    def name(self, job_id: int) -> str:
        """The job as squeue shows it; by its number where it is no tenant any more."""
        tenant = self.get(job_id)
        return tenant.job if tenant else str(job_id)

    def has(self, tenant: Tenant) -> bool:
        """Whether this tenant is open. Another tenant may be, for a later run of the same job."""
        return self.get(tenant.job_id) is tenant

    def welcome(self, tenant: Tenant) -> bytes:
        """The WELCOME that each process of the tenant gets."""
        given = tenant.given
        return daemon_messages.welcome(
            daemon_messages.Gang(
                *(tenant.job_id, given.oversub, tenant.totals, tenant.swaps),
                host=tenant.swaps and self.offers_host(),
                cleans=self.cleans,
            )
        )

    def sharing(self, uuid: str) -> list[Tenant]:
        """The tenants whose gang has the device."""
        found = self._sharing.get(uuid)
        if found is None:
            found = [tenant for tenant in self.values() if uuid in tenant.gang]
            self._sharing[uuid] = found
        return list(found)

    def kin(self, tenant: Tenant) -> list[Tenant]:
        """The jobs of its chain, itself among them (leased/chains/membership.py)."""
        return membership.members(tenant, self.values()) if tenant.chain else [tenant]

    def refusal(self, tenant: Tenant) -> str | None:
        """Why the policy of its devices refuses this tenant; None: it may open."""
        return self.loop.arbiter.refusal(opened(tenant))

    def lacks_share(self, tenant: Tenant) -> str | None:
        """Why this tenant, if it opens, waits for its share of its GPUs; None: it does not."""
        return self.loop.arbiter.lacks_share(opened(tenant))

    def understands(self, tenant: Tenant, before: PolicyState) -> bool:
        """Whether the tenant's policy can use what a policy remembered of it before a restart."""
        return self.loop.arbiter.understands(opened(tenant), before)

    def open(
        self,
        tenant: Tenant,
        usage: Mapping[str, Usage] | None = None,
        remembered: PolicyState | None = None,
        parked_by: str | None = None,
        steps: Mapping[str, StepUsage] | None = None,
    ) -> None:
        """Open a tenant; after a restart of the daemon, with what the store has of it.

        usage: what it had before, by device. remembered: by its policy. parked_by: who had parked
        it; None: it was not parked. steps: what each of its steps had before.
        """
        self[tenant.job_id] = tenant
        self._sharing.clear()
        self.steps.open(tenant.job_id, tenant.swaps, steps or {})
        self.loop.run(opened(tenant))
        self.device_totals.goes_on(tenant.job_id, usage or {})
        for uuid, used in (usage or {}).items():
            self.loop.run(UsageRestored(tenant.job_id, uuid, used.amounts()))
        if remembered is not None:
            self.loop.run(PolicyRestored(tenant.job_id, *remembered))
        if parked_by is not None:
            self.loop.run(Parked(tenant.job_id, parked_by))
        if tenant.nodes:
            self.on_joined(tenant)

    def widen(self, tenant: Tenant, totals: Mapping[str, int]) -> None:
        """Another step of the job uses further devices: they join its gang."""
        self.place(tenant, {**tenant.totals, **totals})
        tenant.tell_all(self.welcome(tenant))
        self.loop.run(Widened(tenant.job_id, tenant.gang))

    def place(self, tenant: Tenant, totals: Mapping[str, int]) -> None:
        """The tenant has these devices from now on; the arbiter is told by the caller."""
        tenant.totals = dict(totals)
        tenant.gang = tuple(totals)
        self._sharing.clear()

    def close(self, job_id: int) -> FinalUsage:
        """Close the tenant and return its usage. Processes that still run are refused."""
        usage = dict(self.loop.view.usage(job_id))
        tenant = self.pop(job_id)
        self._sharing.clear()
        for client in tenant.clients:
            self.forget_claims(client)
        tenant.tell_all(daemon_messages.refused(lib.GL_REFUSED_NO_TENANT, ENDED))
        self.loop.run(Closed(job_id))
        if tenant.nodes:
            self.on_left(job_id)
        self.device_totals.ends(job_id, usage)
        return FinalUsage(usage, self.steps.close(job_id, usage))

    def usage(self, jobs: Collection[int] | None = None) -> dict[int, dict[str, Usage]]:
        """Usage up to now of all tenants, or of these."""
        return {job_id: dict(self.loop.view.usage(job_id)) for job_id in self._chosen(jobs)}

    def usage_by_step(
        self, usage: Mapping[int, Mapping[str, Usage]]
    ) -> dict[int, dict[str, StepUsage]]:
        """What each step of these tenants has had. usage: what they have had up to now."""
        return {job_id: self.steps.divided(job_id, used) for job_id, used in usage.items()}

    def usage_to_store(
        self, usage: Mapping[int, Mapping[str, Usage]]
    ) -> dict[int, dict[str, StepUsage]]:
        """The same, of those for which it is time to divide it again."""
        due = {job_id: used for job_id, used in usage.items() if self.steps.is_due(job_id)}
        return self.usage_by_step(due)

    def totals(self) -> dict[str, Usage]:
        """By device, what all jobs together have had of it since this daemon began."""
        return self.device_totals.now(self.usage())

    def remembered(self, jobs: Collection[int] | None = None) -> dict[int, PolicyState]:
        """What policies remember of all tenants, or of these, up to now."""
        return {job_id: self.loop.view.policy_state(job_id) for job_id in self._chosen(jobs)}

    def parked_by(self, jobs: Collection[int] | None = None) -> dict[int, str | None]:
        """By job, who has parked each tenant, or each of these; None: it is not parked.

        For a suspended job it is who had parked it before: that it is suspended, the next daemon
        finds out itself.
        """
        found = {job: self.loop.view.tenant(job).parked for job in self._chosen(jobs)}
        told = {job: p.before if p and p.suspended else p for job, p in found.items()}
        return {job: parked.by if parked else None for job, parked in told.items()}

    def _chosen(self, jobs: Collection[int] | None) -> Collection[int]:
        return self if jobs is None else [job for job in jobs if job in self]


def opened(tenant: Tenant) -> Opened:
    given = tenant.given
    return Opened(
        *(tenant.job_id, tenant.gang, given.lock, given.quantum_ns, tenant.swaps),
        request=given.request,
        limit=given.limit,
        job=tenant.job,
        job_class=given.job_class,
        ordered=bool(tenant.nodes),
        chain=f"{tenant.uid}/{tenant.chain}" if tenant.chain else "",
    )

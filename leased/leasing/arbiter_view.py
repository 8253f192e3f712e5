"""What the arbiter knows, to be read only: for status, questions, and the monitors.

A view copies nothing: each question is answered from the arbiter's state at that moment. It does
not keep tenants or devices in the arbiter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leased.core.arbiter import Arbiter
from leased.core.policy import PolicyState
from leased.core.state import Lease
from leased.leasing.device_view import DeviceView
from leased.leasing.tenant_view import TenantView
from leased.usage.usage import Usage


class ArbiterView:
    """What the arbiter knows. clock: monotonic ns."""

    def __init__(self, arbiter: Arbiter, clock: Callable[[], int]):
        self._arbiter = arbiter
        self._clock = clock

    @property
    def epoch(self) -> int:
        """The epoch of the last lease that was granted to any tenant, or a higher one."""
        return self._arbiter.epoch

    @property
    def drain_ns(self) -> int:
        """How long a holder has to release a revoked lease."""
        return self._arbiter.rules.drain_ns

    @property
    def in_grace(self) -> bool:
        """Whether nothing is granted yet after a restart."""
        return self._arbiter.grace_until != 0

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        return self._arbiter.next_deadline()

    def tenant(self, job_id: int) -> TenantView:
        return TenantView(self._arbiter, self._arbiter.tenants[job_id])

    def lease(self, job_id: int) -> Lease | None:
        """The lease that a tenant holds: the arbiter's own."""
        return self._arbiter.tenants[job_id].lease

    def hold_together(self, job_id: int, other: int) -> bool:
        """Whether two tenants are of one chain, and hold their device together."""
        tenants = self._arbiter.tenants
        return self._arbiter.leasing.chains.could_hold(tenants[job_id], tenants[other])

    def find_tenant(self, job_id: int) -> TenantView | None:
        return self.tenant(job_id) if job_id in self._arbiter.tenants else None

    @property
    def frozen(self) -> list[int]:
        """The tenants whose processes cannot act."""
        return [tenant.id for tenant in self._arbiter.tenants.values() if tenant.frozen]

    def device(self, uuid: str) -> DeviceView:
        return DeviceView(self._arbiter, self._arbiter.devices[uuid])

    def has_device(self, uuid: str) -> bool:
        return uuid in self._arbiter.devices

    def devices(self) -> list[DeviceView]:
        return [self.device(uuid) for uuid in self._arbiter.devices]

    @property
    def lacking_share(self) -> list[int]:
        """Tenants that wait for their share of their GPUs, as they came."""
        return list(self._arbiter.rules.shares.waiting)

    def policy_of(self, uuid: str) -> str:
        """The name of the policy that the device has now: the site's, or the one of shares."""
        return self._arbiter.policies[uuid]

    def requested(self, uuid: str) -> float:
        """The part of the device's time that its tenants request together."""
        return self._arbiter.rules.shares.requested(uuid)

    def usage(self, job_id: int) -> Mapping[str, Usage]:
        """What a tenant has had of each device up to now."""
        return self._arbiter.usage(job_id, self._clock())

    def policy_state(self, job_id: int) -> PolicyState:
        """What the tenant's policy remembers of it up to now."""
        return self._arbiter.policy_state(job_id, self._clock())

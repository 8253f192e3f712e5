"""Where the GPU's own time slices cannot divide the work of all its tenants: the fallback.

With the driver's own slices memory that fits is all the same side by side, as before. A tenant with
a share takes turns there, by a policy that keeps shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from leased.core.state import Tenant


class TurnsInstead:
    """tenants: all there are, by id."""

    def __init__(self, tenants: Mapping[int, Tenant]):
        self._tenants = tenants
        self._mask = 0  # devices of uncontrolled tenants

    def follow(self) -> None:
        """Some tenant's work can be divided, or cannot any more."""
        self._mask = 0
        for tenant in self._tenants.values():
            if _is_uncontrolled(tenant):
                self._mask |= tenant.mask

    def of(self, tenant: Tenant) -> bool:
        """Whether it takes turns for that."""
        return tenant.has_share and tenant.mask & self._mask != 0

    def uncontrolled(self, device: str) -> list[Tenant]:
        """Tenants of the device whose work time slices cannot divide."""
        found = self._tenants.values()
        return [t for t in found if device in t.gang and _is_uncontrolled(t)]


def _is_uncontrolled(tenant: Tenant) -> bool:
    return tenant.has_asked and not tenant.controlled

"""On which devices tenants have memory, so that nothing looks at the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from leased.core.share import Share

if TYPE_CHECKING:
    from leased.core.device_memory import DeviceMemory
    from leased.core.residency import Residency


# A device, and what a tenant has there.
Part: TypeAlias = "tuple[Residency, Share]"


class Whereabouts:
    """of: by tenant and UUID, what it has on the devices where it has memory, or swaps. full: the
    devices where more memory is resident than there is room for, since holders need it. swapping:
    those where somebody swaps."""

    def __init__(self) -> None:
        self.of: dict[int, dict[str, Part]] = {}
        self.full: set[str] = set()
        self.swapping: set[str] = set()

    def enter(self, tenant: int, device: Residency, share: Share) -> None:
        """The tenant has memory on the device from now on."""
        parts = self.of.setdefault(tenant, {})
        if device.uuid not in parts:
            parts[device.uuid] = device, share

    def leave(self, tenant: int, device: DeviceMemory) -> None:
        """The tenant has none there any more; it may have had none before."""
        parts = self.of.get(tenant)
        if parts is not None and parts.pop(device.uuid, None) is not None and not parts:
            del self.of[tenant]


def handoff_ns(parts: Iterable[tuple[DeviceMemory, Share]]) -> int:
    """How long moving memory takes if the tenant with these parts is granted next: on the device
    where it takes longest, and in the direction in which it does, in ns."""
    found = 0.0
    for device, share in parts:
        size, capacity = share.bytes, device.capacity
        moved = (size if size < capacity else capacity) - share.resident
        # What was never used need not come in; of others as much must leave as there is too much.
        excess, untouched = device.resident - capacity, -share.untouched
        moved += excess if excess > untouched else untouched
        if moved > 0:
            speed = device.paging if share.reported is None else device.link
            took = moved / speed.bytes_s
            found = found if found > took else took
    return int(found * 1e9)

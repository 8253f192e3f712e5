"""What the kernel keeps a job to, of a GPU's memory, by the cgroup controller dmem (limits.dmem).

The interposer keeps a job's allocations to what the job may have; contexts are not in that. The
kernel counts both, so its cap leaves room for contexts. It is what a program meets that goes round
the interposer: with the interposer nobody comes there.
"""

from __future__ import annotations

from leased.gpus.devices import CONTEXT_MOST
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant

PROCESSES = 8  # of a job, for whose contexts there is room beside what it may allocate


def of_tenant(leases: Leases, tenant: Tenant) -> dict[str, int]:
    """By PCI address, bytes; GPUs of which the job may have all, or nearly so, are left out."""
    if tenant.given.oversub:
        return {}
    found: dict[str, int] = {}
    for uuid, total in tenant.totals.items():
        gpu = leases.gpus[uuid]
        most = total + PROCESSES * CONTEXT_MOST * leases.gpus.overheads[uuid].first
        if gpu.pci and most < gpu.memory:
            found[gpu.pci] = most
    return found

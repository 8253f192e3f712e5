"""Host memory for copies of swapped memory: how much of it each job needs, and may have.

Where the node keeps no memory for copies (leased/copies) it is the job's own, and counts against
its --mem. So a job whose --mem is less than it may need is refused before it starts, not killed
for it later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from leased.base.errors import Refused
from leased.config.config import Config
from leased.config.options import parse_amount
from leased.leasing.tenant import Tenant

GIB = 1 << 30
MIB = 1 << 20
# This part of a job's memory, or these bytes, are left to its programs: see cgroup_memory.c.
OWN_PART, OWN_BYTES = 8, GIB


def needed(tenant: Tenant) -> int:
    """Bytes of host memory that the tenant may need: as many as it may have on its devices."""
    return sum(tenant.totals.values()) if tenant.swaps else 0


def host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def budget(config: Config) -> int:
    """Bytes that all copies of the node may take together."""
    return parse_amount(config.swap_host, host_bytes()) if config.swap else 0


def ahead_most(config: Config) -> int:
    """Bytes of host memory that may be made for copies before a handoff needs them."""
    return min(budget(config), parse_amount(config.swap_ahead, host_bytes()))


def check(config: Config, tenant: Tenant) -> None:
    """Refused: the tenant may not swap here, wherever its copies would be kept."""
    if not config.swap:
        raise Refused(
            "memory:swap is not allowed on this site",
            "use memory:managed, or ask the administrator to set limits.swap = true",
        )
    if tenant.given.lock == "off":
        raise Refused(
            "memory:swap does not go with lock:off, since jobs that do not fit together have to "
            "take turns",
            "use lock:auto",
        )
    if tenant.given.oversub:
        raise Refused(
            "memory:swap does not go with oversub:on, since all memory of a process has to be on "
            "the device while it works",
            "use oversub:off, or memory:managed",
        )


def check_own(config: Config, tenant: Tenant, others: Iterable[Tenant], memory_mib: int) -> None:
    """Refused: its copies would be in its own memory, and there is not enough of it. memory_mib:
    what its first step may have; 0: no limit."""
    need = needed(tenant)
    check_step(need, memory_mib)
    check_budget(config, need, others)


def check_step(need: int, memory_mib: int) -> None:
    """Refused: a step's processes may need so many bytes for copies, and the step may have less.

    memory_mib: what the step may have; 0: no limit. Some of that is left to the programs. Any step
    may be the one whose processes need all copies.
    """
    memory = memory_mib * MIB
    if memory and memory - min(OWN_BYTES, memory // OWN_PART) < need:
        raise Refused(
            f"memory:swap may need {need / GIB:.1f} GiB of host memory besides what its "
            f"programs need themselves, and this step has {memory_mib / 1024:.1f} GiB in all",
            f"use --mem={need // GIB + 2}G (for srun too), or mem:SIZE to have less of the GPU",
        )


def check_budget(config: Config, need: int, others: Iterable[Tenant]) -> None:
    """Refused: together with other jobs' the copies would exceed limits.swap_host."""
    allowed = parse_amount(config.swap_host, host_bytes())
    taken = sum(needed(other) for other in others)
    if taken + need > allowed:
        raise Refused(
            f"memory:swap may need {need / GIB:.1f} GiB of host memory; this node has "
            f"{allowed / GIB:.1f} GiB for that, of which other jobs may need {taken / GIB:.1f} GiB",
            "use mem:SIZE to have less of the GPU, or memory:managed",
        )

"""A note for a job's user at its start: an option of the job has no effect on this node."""

from __future__ import annotations

from collections.abc import Iterable

from leased.config import options
from leased.gpus.devices import Gpu

MIB, GIB = 1 << 20, 1 << 30


def size(amount: int) -> str:
    return f"{amount / GIB:.4g} GiB" if amount >= GIB else f"{amount / MIB:.4g} MiB"


def of_options(said: options.Options, gang: Iterable[Gpu]) -> str:
    """One sentence, or "". said: what the job itself asked for."""
    if said.mem_bytes is None:
        return ""
    smallest = min(gang, key=lambda gpu: gpu.usable)
    if said.mem_bytes <= smallest.usable:
        return ""
    return (
        f"mem:{size(said.mem_bytes)} has no effect on GPU {smallest.index}, of which a job may "
        f"have {size(smallest.usable)} at most; oversub:on lets a job have more than its GPU holds"
    )

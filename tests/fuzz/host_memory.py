"""Host memory for copies without any: the real account of it, over a keeper that makes none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

from leased.copies.asks import Made
from leased.copies.keeper_link import KeeperLink
from leased.copies.node_memory import NodeMemory
from leased.copies.unfreed import Owner
from leased.leasing.leases import Leases
from tests.fuzz.fakes import FakeLoop

BUDGET = 100 << 30
LOOK_S = 50.0  # between looks at claims that wait, of which a run may have days


class FakeKeeper:
    """What it has is known by name and size, and outlives the daemon."""

    connected = True

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.found: Callable[[dict[str, int]], None] = lambda _: None
        self.unfreed: Callable[[dict[Owner, int] | None], None] = lambda _: None

    def make(self, name: str, size: int, huge: bool, made: Made, *, user: int) -> None:
        del huge, user
        if size >> 20 == 1022:  # one of few sizes for which the host has no memory
            made(None, "the host has no memory")
            return
        self.files.setdefault(name, size)
        made(os.open(os.devnull, os.O_RDONLY), "")

    def end(self, name: str) -> None:
        self.files.pop(name, None)

    def close(self) -> None:
        pass


def lend(leases: Leases, keeper: FakeKeeper, loop: FakeLoop, waits: bool) -> NodeMemory:
    """From now on the leases lend what the keeper has. waits: limits.swap_full."""
    memory = NodeMemory(cast(KeeperLink, keeper), loop, lambda: BUDGET)  # type: ignore[arg-type]
    leases.keep_copies(memory, lambda: "wait" if waits else "refuse")
    keeper.found(keeper.files.copy())
    return memory


def fault(leases: Leases, keeper: FakeKeeper, memory: NodeMemory) -> str | None:
    """What is wrong with the account, if anything."""
    desk = leases.claims
    assert desk is not None
    memory.left()
    if {key.name: size for key, size in memory.pool.bytes.items()} != keeper.files:
        return "the keeper has other host memory than the daemon counts"
    if memory.pool.total > BUDGET:
        return "more host memory is lent than there is"
    jobs = {job for job, _ in desk.claims.granted.values()}
    jobs |= {waiter.job_id for waiter in desk.waiters + desk.held}
    if not jobs <= set(leases.tenants):
        return "a job that has ended claims host memory"
    return None


def end_process(memory: NodeMemory) -> None:
    """The process that all connections are of has ended."""
    for process in list(memory.ends):
        memory.process_ended(process)

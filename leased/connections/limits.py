"""How many connections, and how much of the daemon's time, one user may have.

Root is not limited: it could as well stop the daemon.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from leased.wire.device_bytes import DeviceBytes

CONNECTIONS = 65_536  # on one socket; further ones wait in its backlog
KEPT_FILES = 256  # descriptors that are never given to connections
UNHEARD_PER_UID = 256  # connections of one user that have not said HELLO
HELLO_S = 10.0
ADMIN_PER_UID = 16
ADMIN_IDLE_S = 60.0
RETRY_S = 1.0  # until the next attempt where no descriptors were left

SHARE = 0.2  # of one processor, for all processes of one user together
BURST_S = 0.05
SLICE_S = 0.001  # of it at once while others have their turns between
REST_S = 0.001  # timers are no finer
EVENT_COST_S = 15e-6  # what the loop spends on one event besides, which no clock of ours sees
MEETING_COST_S = 0.0005  # what an introduction counts for besides
HELLO_COST_S = 0.001  # what a new client counts for besides: the service manager keeps it too
MESSAGES_BURST = 4096  # of one client before its rate is looked at
MESSAGES_PER_S = 4096.0  # of one client
LINES_BURST = 20.0  # lines of the journal about one user's processes
LINES_PER_S = 1.0
USERS = 4096  # whose budgets are kept; full ones are forgotten beyond

_What = TypeVar("_What")

BYTES_MOST = 1 << 44  # that a process may say it has on a device; sums stay far below 63 bits

SLOWEST_BYTES_NS = 0.25  # a prefetch that was slower says nothing of the link


def most_connections() -> int:
    """What the limit of open files allows, at most CONNECTIONS."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(16, min(CONNECTIONS, files - KEPT_FILES))


def clamped(memory: Mapping[str, DeviceBytes], known: Container[str]) -> dict[str, DeviceBytes]:
    """What a process says of its memory, limited to what is possible. known: the UUIDs of the
    node's devices; a process may name any number of others, one after the other."""
    return {
        uuid: DeviceBytes(*(min(amount, BYTES_MOST) for amount in amounts))
        for uuid, amounts in memory.items()
        if uuid in known
    }


def credible(size: int, ns: int) -> bool:
    """Whether a link can be as slow as a process says; handoffs are reckoned by it for all."""
    return size >= SLOWEST_BYTES_NS * ns


@dataclass
class Budget:
    """A token bucket of one user: at most `most` at once, refilled by `per_s` a second."""

    most: float
    per_s: float
    at: float
    credit: float = field(init=False)

    def __post_init__(self) -> None:
        self.credit = self.most

    def credit_at(self, now: float) -> float:
        """The credit now; below 0: what the user owes."""
        credit = self.credit + (now - self.at) * self.per_s
        self.at = now
        self.credit = credit = credit if credit < self.most else self.most
        return credit

    def has_credit(self, now: float) -> bool:
        return self.credit_at(now) > 0

    def is_full(self, now: float) -> bool:
        return self.credit_at(now) >= self.most

    def wait_s(self, now: float, wanted: float) -> float:
        """Seconds until the credit is that high."""
        return max(0.0, wanted - self.credit_at(now)) / self.per_s

    def spend(self, amount: float) -> None:
        self.credit -= amount


@dataclass
class Lines:
    """Limits the log lines about each user's processes."""

    time: Callable[[], float]
    most: float = LINES_BURST
    per_s: float = LINES_PER_S
    by_payer: dict[int, Budget] = field(default_factory=dict)

    def may(self, payer: int) -> bool:
        now = self.time()
        budget = self.by_payer.get(payer)
        if budget is None:
            if len(self.by_payer) >= USERS:
                forget(self.by_payer, lambda b: b.is_full(now))
            budget = self.by_payer[payer] = Budget(self.most, self.per_s, now)
        if not budget.has_credit(now):
            return False
        budget.spend(1)
        return True


def forget(kept: dict[int, _What], settled: Callable[[_What], bool]) -> None:
    """Forget users with full credit: a new budget of theirs would be the same."""
    for payer in [payer for payer, what in kept.items() if settled(what)]:
        del kept[payer]

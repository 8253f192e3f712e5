"""How much of the daemon one user may take: connections, and its time.

Root is not limited: it could as well stop the daemon.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leased.wire import Bytes

CONNECTIONS = 65_536  # on one socket; further ones wait in its backlog
KEPT_FILES = 256  # descriptors that are never given to connections
UNHEARD_PER_UID = 256  # connections of one user that have not said HELLO
HELLO_S = 10.0
ADMIN_PER_UID = 16
ADMIN_IDLE_S = 60.0
RETRY_S = 1.0  # out of descriptors: so long until the next try

SHARE = 0.2  # of one processor, for all processes of one user together
BURST_S = 0.05
HELLO_COST_S = 0.001  # what a new client counts for besides: the service manager keeps it too
LINES_BURST = 20.0  # lines of the journal about one user's processes
LINES_PER_S = 1.0
USERS = 4096  # whose budgets are kept; full ones are forgotten beyond

BYTES_MOST = 1 << 44  # that a process may say it has on a device; sums stay far below 63 bits

SLOWEST_BYTES_NS = 0.25  # a prefetch that was slower says nothing of the link


def most_connections() -> int:
    """What the limit of open files allows, at most CONNECTIONS."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(16, min(CONNECTIONS, files - KEPT_FILES))


def clamped(memory: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """What a process says of its memory, within what can be."""
    return {
        uuid: Bytes(*(min(amount, BYTES_MOST) for amount in amounts))
        for uuid, amounts in memory.items()
    }


def credible(size: int, ns: int) -> bool:
    """Whether a link can be as slow as a process says; handoffs are reckoned by it for all."""
    return size >= SLOWEST_BYTES_NS * ns


@dataclass
class Budget:
    """What one user may still take of something that comes back: most at once, per_s of it."""

    most: float
    per_s: float
    at: float
    credit: float = field(init=False)

    def __post_init__(self) -> None:
        self.credit = self.most

    def refill(self, now: float) -> None:
        self.credit = min(self.most, self.credit + max(0.0, now - self.at) * self.per_s)
        self.at = now

    def wait_s(self, now: float) -> float:
        """Seconds until there is credit again; 0: there is."""
        self.refill(now)
        return 0.0 if self.credit > 0 else -self.credit / self.per_s + 0.001

    def spend(self, amount: float) -> None:
        self.credit -= amount


@dataclass
class Budgets:
    """By uid. `time` gives seconds of the loop's clock."""

    time: Callable[[], float]
    most: float = BURST_S  # processor seconds, where nothing else is said
    per_s: float = SHARE
    by_uid: dict[int, Budget] = field(default_factory=dict)

    def of(self, uid: int) -> Budget:
        now = self.time()
        if uid not in self.by_uid and len(self.by_uid) >= USERS:
            self._forget(now)
        return self.by_uid.setdefault(uid, Budget(self.most, self.per_s, now))

    def _forget(self, now: float) -> None:
        for uid, budget in list(self.by_uid.items()):
            budget.refill(now)
            if budget.credit >= budget.most:
                del self.by_uid[uid]


class Lines:
    """Which lines about a user's processes go to the journal: not more than it can take."""

    def __init__(self, time: Callable[[], float]):
        self.budgets = Budgets(time, LINES_BURST, LINES_PER_S)

    def may(self, uid: int) -> bool:
        budget = self.budgets.of(uid)
        if budget.wait_s(self.budgets.time()):
            return False
        budget.spend(1)
        return True

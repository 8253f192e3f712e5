"""What the classes of tenants decide where these cannot run side by side.

- An online waiter is the first in the line, and offline holders in its way are revoked at once.
  One whose last lease ended since its memory did not come back takes its turn like others: where it
  finds no room they would wait for ever.
- The lease of an online holder does not end for the sake of an offline waiter, which has to wait
  until the holder is idle. It ends for others as usual, but no sooner for those that hurry.
- A waiter without a class, or an online one of that kind, that has waited for PATIENCE times its
  quantum is overdue: from then on it takes turns with the online ones. Several of those that never
  idle would keep it waiting for ever; if it went before all of them, it could do so to a gang.
- An online holder that is idle yields later than others: it has waited for PATIENCE times as
  long as handoffs take, so that they delay it by a part of its time that is as small.

Tenants of the same class, and those without one, take turns as their policy says.
"""

from __future__ import annotations

from leased.core.state import FOREVER, Tenant
from leased.memory.share import Place

ONLINE, OFFLINE = "online", "offline"
FIRST = -1 << 171  # before all usual places
AHEAD = FIRST * 3 // 4  # behind the places of who goes first, and before all others
PATIENCE = 20  # handoffs, or quanta


def place(usual: Place) -> Place:
    """Of an online or overdue waiter that has the usual place without that."""
    return FIRST + usual


def is_overdue(waiter: Tenant, quantum_ns: int, now: int) -> bool:
    """Online ones that come after it do not go before it any more. quantum_ns: its own."""
    if waiter.urgent or waiter.offline:
        return False
    return now - waiter.asked_at >= PATIENCE * quantum_ns


def goes_first(waiter: Tenant) -> bool:
    """It is online and can use a lease, as far as is known, or it was overdue."""
    return waiter.urgent or (waiter.place is not None and waiter.place < AHEAD)


def at_once(holder: Tenant, waiter: Tenant) -> bool:
    """The holder is revoked whatever is left of its quantum."""
    return holder.offline and goes_first(waiter)


def quantum(holder: Tenant, waiter: Tenant) -> int | None:
    """How long the holder may run while this waiter waits. None: the classes do not say it."""
    if at_once(holder, waiter):
        return 0
    return FOREVER if holder.online and waiter.offline else None


def patience(waiter: Tenant, usual: int) -> int:
    """After how much idleness, in ns, an online holder yields to this waiter."""
    return usual if waiter.online else PATIENCE * usual

"""The interface of a policy, which decides which tenant is next and for how long.

The mechanism itself ensures what must hold under every policy: a gang gets all its devices or
none, holders that are not compatible never run together, memory must fit, a quantum is never
shorter than its handoff is worth, a holder that does not release in time loses its devices, the
requests of a device's tenants are together at most all of its time, and no device idles beside
a tenant that could use it, unless that tenant is at its limit.

A policy never blocks, reads no clock and keeps no reference to its arguments: each call passes
all that it may look at, and it remembers only numbers of its own. Times are ns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, NamedTuple, Optional, Protocol


class Spec(Protocol):
    """A tenant as a policy sees it. arrival: a number that is higher the later the tenant began to
    wait."""

    id: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int
    swaps: bool
    arrival: int
    request: float  # the part of its devices' time that it is to have at least; 0: it requests none
    limit: float  # the part of its devices' time that it may have at most; 1: all of it


class View(Protocol):
    """What else a policy may ask about the node. It cannot change anything through it."""

    @property
    def now(self) -> int: ...

    def handoff_ns(self, tenant: Spec) -> int:
        """How long moving memory takes if the tenant is granted next; 0: nothing moves."""
        ...

    def held_ns(self, tenant: Spec) -> int:
        """How much of its quantum is over; 0: it holds nothing, or its memory is being restored."""
        ...

    def competitors(self, tenant: Spec) -> int:
        """How many tenants hold or wait for the most wanted of its devices, itself included."""
        ...


class Had(NamedTuple):
    """What a tenant has had of its devices, in ns. leased_ns: for how long any tenant held each of
    them, added up. Of each other amount there is one for each device, in their order, or none at
    all if the tenant waited. even_ns: what it would have had if the device had been divided evenly
    among all that held or waited. held_ns: its time as a holder, divided evenly among tenants that
    held at the same time. sliced: its share was kept meanwhile by the GPU's own time slices."""

    devices: tuple[str, ...]
    leased_ns: int
    even_ns: Sequence[int]
    held_ns: Sequence[int] = ()
    sliced: bool = False


class Policy:
    """One object serves all devices of one policy. A gang has the policy of its first device.

    This one serves who came first, and remembers nothing.
    """

    name: ClassVar[str]
    shares: ClassVar[bool] = False  # whether it keeps the requests and limits of tenants
    charges: ClassVar[bool] = False  # whether it wants to know what tenants have had
    # Whether it must be charged whenever somebody begins or ceases to want a device of a holder. If
    # not, it is charged before it is asked.
    prompt: ClassVar[bool] = False

    def admit(self, view: View, tenant: Spec) -> str | None:
        """Why the tenant is refused, for its user to read; None: it is admitted."""
        return None

    def opened(self, tenant: Spec) -> None:
        """The tenant has been opened, or had another policy before."""

    def closed(self, tenant: int) -> None:
        """The tenant has been closed, or has another policy now. It can be forgotten."""

    def charged(self, tenant: int, had: Had, now: int) -> None:
        """Note what the tenant has had of its gang's devices since it was last charged. The
        time in which it held or waited counts, with the restore before its quantum, the drain after
        it, the time in which it was barred, and a moment after all this."""

    def order(self, view: View, tenant: Spec) -> int:
        """The waiter's place. The lowest is served first; if two are equal, the tenant that came
        first. Asked when it begins to wait, when memory that it had on the device is taken from it,
        and at the time of wake_at()."""
        return tenant.arrival

    def quantum(self, view: View, holder: Spec, waiter: Spec | None, asked_ns: int) -> int:
        """How long the holder may run while this waiter (None: any waiter) waits for it. asked_ns:
        the quantum that the site or the tenant wants."""
        return asked_ns

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        """Whether the holder is revoked before its quantum ends, once the handoffs are worth it."""
        return False

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """After how much idleness, in ns, the holder yields to this waiter. After as much as the
        handoff takes it costs at most twice what it would have cost to know the pause beforehand
        (the rule of ski rental)."""
        return handoff_ns

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        """The time, later than now, at which the waiter's order changes by itself; None: it does
        not. Asked after order(), and so at that time again."""
        return None

    def barred_until(self, view: View, waiter: Spec) -> int | None:
        """The time, later than now, until which the waiter does not get its devices even if no
        other tenant wants them; None: it may have them. Asked when it begins to wait, and at that
        time, but not where it may run side by side with others."""
        return None

    def is_limited(self, holder: Spec) -> bool:
        """Whether the holder's quantum ends even if no other tenant waits. Not asked where it may
        run side by side with others."""
        return False

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        """What the next daemon should know of these tenants (None: of all); empty: nothing."""
        return b""

    def load(self, data: bytes) -> bool:
        """Take over what dump() returned, for tenants that are open. Returns False if some of it
        could not be understood, and was left out."""
        return True


class PolicyState(NamedTuple):
    """What the policy of that name remembers of one tenant; empty: nothing."""

    policy: str
    state: str


MakePolicy = Callable[[Optional[str]], Policy]
"""A new policy of that name, None: of the default one. ValueError: there is none."""

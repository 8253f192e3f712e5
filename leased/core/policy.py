"""The seam between the mechanism and a policy, which says who is next and for how long.

What must hold under every policy is not asked here: gangs get all their devices or none,
holders that are not compatible never run together, memory must fit, a quantum is never
shorter than its handoff is worth, a holder that does not release in time loses its devices,
the requests of a device's tenants are at most all of its time, and no device idles beside a
tenant that could use it, unless that one is at its limit.

A policy never blocks, reads no clock and keeps no reference to what it is given: it is asked
with all that it may look at, and remembers numbers of its own. Times are ns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol


class Spec(Protocol):
    """A tenant as a policy sees it. arrival: a number that grows; who began to wait later has a
    higher one."""

    @property
    def id(self) -> int: ...

    @property
    def gang(self) -> tuple[str, ...]: ...

    @property
    def lock(self) -> str: ...

    @property
    def quantum_ns(self) -> int: ...

    @property
    def swaps(self) -> bool: ...

    @property
    def arrival(self) -> int: ...

    @property
    def request(self) -> float:
        """The part of its devices' time that it is to have at least; 0: no part in particular."""
        ...

    @property
    def limit(self) -> float:
        """The part of its devices' time that it may have at most; 1: all of it."""
        ...


class View(Protocol):
    """What a policy may know of the node besides. It cannot change anything by it."""

    @property
    def now(self) -> int: ...

    def handoff_ns(self, tenant: Spec) -> int:
        """How long moving memory takes if the tenant is granted next; 0: nothing moves."""
        ...

    def held_ns(self, tenant: Spec) -> int:
        """How much of its quantum is over; 0: it holds nothing, or its memory comes back."""
        ...

    def competitors(self, tenant: Spec) -> int:
        """How many tenants hold or wait for the most wanted of its devices, itself included."""
        ...


class Had(NamedTuple):
    """What a tenant has had of one device, in ns. held_ns: divided evenly among those who held it
    at once. even_ns: what an even division among all who waited for it or held it would have given
    the tenant. leased_ns: for how long anybody held it. beside_ns: what of held_ns was while others
    held it too, and together_ns: for how long that was by the clock."""

    device: str
    held_ns: int
    even_ns: int
    leased_ns: int
    beside_ns: int = 0
    together_ns: int = 0


class Beside(NamedTuple):
    """What a tenant has had of a device while others held it too, since the work there was last
    measured. together_ns: by the clock. even_ns: of that, what an even division gives it.
    worked_ns: for how long of it the device worked for the tenant, as far as is known."""

    tenant: int
    together_ns: int
    even_ns: int
    worked_ns: int


class Measured(NamedTuple):
    """What was measured of one device's work in the last `ns`. busy: the part of the time in which
    there was some; None: not known, or nothing was measured for too long. worked: what of that each
    tenant's was, in ns; empty: nobody worked, or it is not known whose it was."""

    device: str
    ns: int
    busy: float | None
    worked: Mapping[int, int]
    beside: Sequence[Beside]


class Policy(Protocol):
    """One object serves all devices of one policy. A gang has the policy of its first device."""

    name: ClassVar[str]
    shares: ClassVar[bool]  # it keeps the requests and limits of tenants

    def admit(self, view: View, tenant: Spec) -> str | None:
        """Why the tenant may not be here, for its user to read; None: it may."""
        ...

    def opened(self, tenant: Spec) -> None:
        """A tenant is here, or comes from another policy."""
        ...

    def closed(self, tenant: int) -> None:
        """The tenant is over, or goes to another policy. Nothing of it need be remembered."""
        ...

    def charged(self, tenant: int, had: list[Had], now: int) -> None:
        """What the tenant has had of each device of its gang since it was last charged. Only time
        in which it waited or held counts, and a moment after that; the restore before its quantum
        and the drain after it do, and the time in which it was barred."""
        ...

    def order(self, view: View, tenant: Spec) -> int:
        """The waiter's place: who has the lowest is served first, of equals who came first. Asked
        when it begins to wait, when memory that it had on the device is taken from it, and at
        wake_at."""
        ...

    def quantum(self, view: View, holder: Spec, waiter: Spec | None, asked_ns: int) -> int:
        """How long the holder runs while this waiter, None: any, waits for it. asked_ns: as the
        site or the tenant wants it."""
        ...

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        """The holder goes before its quantum is over, as soon as the handoffs are worth it."""
        ...

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """After how much idleness the holder yields to this waiter."""
        ...

    def beside(self, view: View, tenant: Spec) -> bool:
        """The tenant may run beside others where its lock mode and all memory allow it. Asked when
        it opens, and when measured() says so."""
        ...

    def measures(self, device: str) -> bool:
        """It wants to know what is measured of this device."""
        ...

    def measured(self, work: Measured, now: int) -> bool:
        """The work of a device was measured, or has not been for too long, and all there have been
        charged until now. Is it to be asked again who may run beside others there?"""
        ...

    def why_beside(self, device: str, now: int) -> str:
        """Why tenants with a share run side by side there, or do not; for people to read."""
        ...

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        """When, later than now, the waiter's order changes by itself. Asked after its order, and so
        at that time again."""
        ...

    def barred_until(self, view: View, waiter: Spec) -> int | None:
        """Until when, later than now, the waiter does not get its devices, even if nobody else
        wants them; None: it may have them. Asked when it begins to wait, and at that time."""
        ...

    def is_limited(self, holder: Spec) -> bool:
        """Its quantum ends also while nobody waits."""
        ...

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        """What a new daemon should know of these tenants, None: of all that are here. Empty:
        nothing."""
        ...

    def load(self, data: bytes) -> bool:
        """Take over what was dumped, for the tenants that are here. What cannot be understood
        is left out; was there nothing of that kind?"""
        ...


class PolicyState(NamedTuple):
    """What the policy of that name remembers of one tenant; empty: nothing."""

    policy: str
    state: str


MakePolicy = Callable[[str | None], Policy]
"""A new policy of that name, None: of the default one. ValueError: there is none."""

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

from collections.abc import Callable, Collection
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


# Of one device: its UUID; how much a tenant has had of it, in ns; how much an even division among
# all who waited for it or held it would have given the tenant; and for how long anybody held it.
Had = tuple[str, int, int, int]


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
        """The tenant may run beside others where its lock mode and all memory allow it."""
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


WITH_SHARES = "elastic"  # the policy of devices with a share, where the chosen one keeps none


class Policies:
    """The policies in use, and which device has which. chosen: by the site; a device may have
    another one as long as a tenant with a share is there."""

    def __init__(self, make: MakePolicy, bits: dict[str, int]):
        default = make(None)
        self.make = make
        self._bits = bits  # of each device
        self.in_use: dict[str, Policy] = {default.name: default}
        self.of_device = dict.fromkeys(bits, default.name)
        self.chosen = dict(self.of_device)
        self._masks: list[int] = []  # devices of each, where there are several

    def of(self, tenant: Spec) -> Policy:
        return self.in_use[self.of_device[tenant.gang[0]]]

    def on(self, device: str) -> Policy:
        return self.in_use[self.of_device[device]]

    def set(self, device: str, name: str) -> None:
        """The device has this policy from now on. ValueError: there is none of that name."""
        self._known(name)
        self.of_device[device] = name

    def choose(self, device: str, name: str) -> None:
        """The site wants this policy. ValueError: there is none of that name."""
        self._known(name)
        self.chosen[device] = name

    def wanted(self, device: str, has_share: bool) -> str:
        """The policy that the device should have."""
        name = self.chosen[device]
        return name if not has_share or self._known(name).shares else WITH_SHARES

    def clear(self) -> None:
        """Forget the policies that no device has any more."""
        used = set(self.of_device.values()) | set(self.chosen.values())
        self.in_use = {name: policy for name, policy in self.in_use.items() if name in used}
        masks = dict.fromkeys(self.of_device.values(), 0)
        for device, name in self.of_device.items():
            masks[name] |= self._bits[device]
        self._masks = list(masks.values()) if len(masks) > 1 else []

    def _known(self, name: str) -> Policy:
        if name not in self.in_use:
            self.in_use[name] = self.make(name)
        return self.in_use[name]

    def mixed(self, connected: Callable[[int], int]) -> int:
        """Devices that others of another policy are connected with."""
        found, left = 0, 0
        for mask in self._masks:
            left |= mask
        while left:
            reached = connected(left & -left)
            left &= ~reached
            if sum(bool(reached & mask) for mask in self._masks) > 1:
                found |= reached
        return found

"""Which policies are in use, and which device has which."""

from __future__ import annotations

from collections.abc import Callable

from leased.core.policy import MakePolicy, Policy, Spec

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
        self.prompt = default.prompt  # some must know at once what holders have had

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
        self.prompt = any(policy.prompt for policy in self.in_use.values())

    def _known(self, name: str) -> Policy:
        if name not in self.in_use:
            self.in_use[name] = self.make(name)
            self.prompt |= self.in_use[name].prompt
        return self.in_use[name]

    def mixed(self, connected: Callable[[int], int]) -> int:
        """Devices that gangs connect with others of another policy."""
        found, left = 0, sum(self._masks)
        while left:
            reached = connected(left & -left)
            left &= ~reached
            if sum(bool(reached & mask) for mask in self._masks) > 1:
                found |= reached
        return found

"""Tells policies what was measured of devices, and asks them again who may run side by side."""

from __future__ import annotations

from leased.core import work
from leased.core.cohort import FREE
from leased.core.deadlines import Deadlines
from leased.core.device_events import WorkMeasured
from leased.core.device_settings import DeviceSettings
from leased.core.effects import Effects
from leased.core.leasing import Leasing
from leased.core.policy import Measured
from leased.core.rules import Rules

OVERLOOKED_NS = 2_000_000_000  # after so long without one a measurement says nothing any more


class SideBySide:
    """overlooked: by device, when nothing will have been measured of it for too long."""

    def __init__(
        self, rules: Rules, effects: Effects, leasing: Leasing, device_settings: DeviceSettings
    ):
        self.rules = rules
        self.effects = effects
        self.quanta = leasing.quanta
        self.device_settings = device_settings
        self.overlooked: Deadlines[str] = Deadlines()

    def next_deadline(self) -> int | None:
        return self.overlooked.first()

    def pass_deadlines(self) -> None:
        while (device := self.overlooked.pop(self.rules.now)) is not None:
            if self.rules.policies.on(device).measures(device):
                self._tell(Measured(device, OVERLOOKED_NS, None, {}, []))

    def measured(self, event: WorkMeasured) -> None:
        """The work of a device was measured."""
        if event.device not in self.rules.devices:
            return
        found = work.measured(event, self.rules)
        if not self.rules.policies.on(event.device).measures(event.device):
            self.overlooked.put(event.device, None)
            return
        self.overlooked.put(event.device, self.rules.now + OVERLOOKED_NS)
        holders = self.rules.devices[event.device].holders
        if any(self.rules.cohorts.of[number].heeds == FREE for number in holders):
            found = found._replace(worked={}, beside=[])  # nobody can say whose part theirs was
        self._tell(found)

    def _tell(self, found: Measured) -> None:
        rules = self.rules
        device, policy = rules.devices[found.device], rules.policies.on(found.device)
        for tenant in (*device.holders.values(), *device.queue.values()):
            rules.charges.charge(tenant, rules.now)
        if policy.measured(found, rules.now):
            self.device_settings.ask_again(device)
        else:
            self.quanta.plan_ends(device)

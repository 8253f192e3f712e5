"""What the driver has measured of a device, divided among those who had it meanwhile."""

from __future__ import annotations

from leased.core.device_events import WorkMeasured
from leased.core.rules import Rules


def measured(event: WorkMeasured, rules: Rules) -> None:
    """Each has its part by its lease time. What was nobody's, or of one that is over, is lost."""
    device = rules.devices.get(event.device)
    if device is None:
        return
    for number, held in device.gauge.take(device.metered(rules.now)[0], rules.now).items():
        tenant = rules.tenants.get(number)
        usage = tenant.usage.get(event.device) if tenant is not None else None
        if usage is None:
            continue
        lease_ns, clock_ns = (min(ns, event.ns) for ns in (held.lease_ns, held.clock_ns))
        if event.busy_percent is not None:
            usage.measured_ns += lease_ns
            usage.busy_ns += lease_ns * event.busy_percent // 100
            if device.residency.on_device(number):
                usage.idle_resident_ns += clock_ns * (100 - event.busy_percent) // 100
        if event.energy_mj is not None and event.ns:
            usage.energy_mj += event.energy_mj * lease_ns // event.ns

"""Divides what the driver has measured of a device among the tenants that held it meanwhile, for
their usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leased.core.device_events import WorkMeasured
from leased.core.rules import Rules
from leased.usage.gauge import Held, WorkPart

PARTS = 1000  # of a weight: some of a tenant's work is not counted
LEAST_WEIGHT = PARTS  # of a tenant that was there


def measured(event: WorkMeasured, rules: Rules) -> None:
    """Divide it by lease time. Parts of tenants that are closed, or of no tenant, are lost.

    If the driver says for which tenants the device worked, lease time side by side is first divided
    by that.
    """
    device = rules.devices.get(event.device)
    if device is None:
        return
    tenants = rules.tenants
    found = {
        number: held
        for number, held in device.gauge.take(device.clock.reading(rules.now)).items()
        if number in tenants and event.device in tenants[number].usage
    }
    known = weights_beside(found, event.parts, _worked(event)) if event.parts else {}
    shifts = divided(found, known)
    for number, held in found.items():
        shift = shifts.get(number, 0)
        if shift:
            tenants[number].settle(rules.now, rules.devices)
        usage = tenants[number].usage[event.device]
        usage.lease_ns += shift
        lease_ns, clock_ns = min(held.lease_ns + shift, event.ns), min(held.clock_ns, event.ns)
        if event.busy_percent is not None:
            usage.measured_ns += lease_ns
            usage.busy_ns += lease_ns * event.busy_percent // 100
            if device.residency.on_device(number):
                usage.idle_resident_ns += clock_ns * (100 - event.busy_percent) // 100
        if event.energy_mj is not None and event.ns:
            usage.energy_mj += event.energy_mj * lease_ns // event.ns


def _worked(event: WorkMeasured) -> dict[int, int]:
    """By tenant, for how many ns the device worked for it; empty: that is not known."""
    total = sum(part.weight for part in event.parts)
    busy_ns = event.ns * (event.busy_percent or 0) // 100
    return {part.tenant: busy_ns * part.weight // total for part in event.parts if part.weight > 0}


def weights_beside(
    found: Mapping[int, Held], parts: Iterable[WorkPart], worked: Mapping[int, int]
) -> dict[int, int]:
    """How much of each tenant's work was done side by side, as a weight in PARTS of the driver's.

    Of a tenant that also held the device alone only the sum of its work is known. It is taken to
    have worked at one pace. But the work of all side by side takes no longer than they were side by
    side; if it would, more of it is taken to have been done alone, as far as there was time for it.
    """
    likely: dict[int, int] = {}
    spare: dict[int, int] = {}  # what of that may have been done alone
    for number, held in found.items():
        work, alone = worked.get(number, 0), held.clock_ns - held.beside_ns
        least = max(0, work - alone)
        likely[number] = max(least, work * held.beside_ns // held.clock_ns if held.clock_ns else 0)
        spare[number] = likely[number] - least
    excess = sum(likely.values()) - sum(held.beside_lease_ns for held in found.values())
    if excess > 0 and (total := sum(spare.values())):
        for number, most in spare.items():
            likely[number] -= most * min(excess, total) // total
    weights = {}
    for part in parts:
        had, work = found.get(part.tenant), worked.get(part.tenant, 0)
        if had is not None and had.clock_ns:
            done, of = (likely[part.tenant], work) if work else (had.beside_ns, had.clock_ns)
            weights[part.tenant] = PARTS * part.weight * done // of
    return weights


def divided(found: Mapping[int, Held], known: Mapping[int, int]) -> dict[int, int]:
    """By how much each tenant's lease time changes when time side by side is divided by the work
    of that time instead of evenly. known: see weights_beside. The changes add up to 0, and no
    tenant gets more than the time by the clock.

    If none of the tenants side by side has worked nothing changes. Otherwise each has a weight of
    at least one percent, since the driver's samples cannot tell less than a percent from nothing.
    """
    beside = {number: held for number, held in found.items() if held.beside_lease_ns}
    if len(beside) < 2 or not any(known.get(number) for number in beside):
        return {}
    weights = {number: max(LEAST_WEIGHT, known.get(number, 0)) for number in beside}
    left = sum(held.beside_lease_ns for held in beside.values())
    given: dict[int, int] = {}
    # A tenant that would get more than the time by the clock gets that, and the others the rest.
    while weights:
        total = sum(weights.values())
        full = [n for n, weight in weights.items() if left * weight > beside[n].beside_ns * total]
        if not full:
            break
        for number in full:
            given[number] = min(left, beside[number].beside_ns)
            left -= given[number]
            del weights[number]
    for number in list(weights):
        given[number] = left * weights[number] // sum(weights.values())
        left -= given[number]
        del weights[number]
    return {number: given[number] - held.beside_lease_ns for number, held in beside.items()}

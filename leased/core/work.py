"""Divides what the driver has measured of a device among the tenants that held it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leased.core.device_events import WorkMeasured
from leased.core.gauge import Held, WorkPart
from leased.core.policy import Beside, Measured
from leased.core.rules import Rules

LEAST_WEIGHT = 1  # of a tenant that was there


def measured(event: WorkMeasured, rules: Rules) -> Measured:
    """Divide by lease time. The parts of nobody and of tenants that are closed are lost.

    Where the driver says whose the work was, the lease time side by side is first divided by that.
    Returns what a policy may want to know of this.
    """
    device = rules.devices[event.device]
    tenants = rules.tenants
    found = {
        number: held
        for number, held in device.gauge.take(device.reading(rules.now)).items()
        if number in tenants and event.device in tenants[number].usage
    }
    shifts = divided(found, event.parts)
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
    busy = None if event.busy_percent is None else event.busy_percent / 100
    worked = _worked(event)
    return Measured(event.device, event.ns, busy, worked, _beside(found, worked))


def _beside(found: Mapping[int, Held], worked: Mapping[int, int]) -> list[Beside]:
    """What each worked beside others is what it worked and did not have alone, since who holds a
    device alone and is idle yields as soon as that matters."""
    beside = []
    for number, held in found.items():
        if held.beside_ns:
            alone = held.clock_ns - held.beside_ns
            work = min(max(0, worked.get(number, 0) - alone), held.beside_ns)
            beside.append(Beside(number, held.beside_ns, held.beside_lease_ns, work))
    return beside


def _worked(event: WorkMeasured) -> dict[int, int]:
    """By tenant, for how many ns of the time it worked; empty: that is not known."""
    total = sum(part.weight for part in event.parts)
    busy_ns = event.ns * (event.busy_percent or 0) // 100
    return {part.tenant: busy_ns * part.weight // total for part in event.parts if part.weight > 0}


def divided(found: Mapping[int, Held], parts: Iterable[WorkPart]) -> dict[int, int]:
    """By how much the lease time of each changes when what all had side by side is divided by
    their work and not evenly. The sum of the changes is 0, and nobody has more than the clock.

    Where nobody who was side by side has worked nothing changes. Else everybody counts with a
    weight of 1 at least: the driver's samples tell less than a percent from nothing no better.
    """
    known = {part.tenant: part.weight for part in parts}
    beside = {number: held for number, held in found.items() if held.beside_lease_ns}
    if len(beside) < 2 or not any(known.get(number) for number in beside):
        return {}
    weights = {number: max(LEAST_WEIGHT, known.get(number, 0)) for number in beside}
    left = sum(held.beside_lease_ns for held in beside.values())
    given: dict[int, int] = {}
    # A tenant that would have more than the clock has the clock, and the others divide the rest.
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

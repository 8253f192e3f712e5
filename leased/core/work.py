"""Divides what the driver has measured of a device among the tenants that held it meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leased.core.device_events import WorkMeasured
from leased.core.gauge import Held, WorkPart
from leased.core.rules import Rules


def measured(event: WorkMeasured, rules: Rules) -> None:
    """Divide by lease time. The parts of nobody and of tenants that are closed are lost.

    Where the driver says whose the work was, the lease time side by side is first divided by that.
    """
    device = rules.devices.get(event.device)
    if device is None:
        return
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


def divided(found: Mapping[int, Held], parts: Iterable[WorkPart]) -> dict[int, int]:
    """By how much the lease time of each changes when what all had side by side is divided by
    their work and not evenly. The sum of the changes is 0, and nobody has more than the clock.

    Where nobody who was side by side has worked nothing changes.
    """
    weights = {part.tenant: part.weight for part in parts}
    beside = {n: held for n, held in found.items() if held.beside_lease_ns}
    working = {n: weight for n in beside if (weight := weights.get(n, 0)) > 0}
    if len(beside) < 2 or not working:
        return {}
    left = sum(held.beside_lease_ns for held in beside.values())
    given = dict.fromkeys(beside, 0)
    # Who would have more than the clock has the clock, and the others divide the rest.
    while working:
        total = sum(working.values())
        full = {n for n, w in working.items() if left * w >= beside[n].beside_ns * total}
        if not full:
            *some, last = working
            share = left
            for n in some:
                given[n] = share * working[n] // total
                left -= given[n]
            given[last] = left
            left = 0
            break
        for n in full:
            given[n] = min(left, beside[n].beside_ns)
            left -= given[n]
            del working[n]
    for n, held in beside.items():  # those who did no work were there too
        more = min(left, held.beside_ns - given[n])
        given[n] += more
        left -= more
    return {n: given[n] - held.beside_lease_ns for n, held in beside.items()}

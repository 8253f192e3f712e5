"""Placement by labels and by what is left, as KubeShare does it (Yeh et al., HPDC 2020,
Algorithm 1).

A tenant with an affinity label goes to the device that has the label, and nowhere else. If no
device has it, an idle one gets it. Any other tenant goes where the labels and what is left allow
it: best fit among the devices without an affinity label, so that gaps are filled; otherwise worst
fit among those with one, so that the tenants to come with that label find room there. An idle
device is the last resort, so that as few as possible are in use.

Tenants of one chain are treated alike, but the first of them goes wherever there is room.

The paper says best and worst fit of a device and not of which of its two amounts: here what is
left of its time decides, then what is left of its memory, then which of them is listed first.
"""

from __future__ import annotations

from collections.abc import Sequence

from leased.chains.membership import JOBS_MOST
from leased.placement.api import CHAIN, USER, Answer, Device, NoDevice, Placed, Request

SHOWN = 3  # devices that a reason names


def place(request: Request, devices: Sequence[Device]) -> Answer:
    """Where the tenant goes."""
    together = [each for each in devices if request.seeks in each.labels]
    if together:
        return _beside_its_like(request, together)
    free = [each for each in devices if request.affinity is None or each.is_idle]
    able = [each for each in free if _fault(request, each) is None]
    if able:
        return Placed(min(able, key=rank))
    return NoDevice(_reason(request, devices))


def conflict(request: Request, device: Device) -> str | None:
    """The label that keeps the tenant off the device, or the tenants beside which it may not be, in
    words; None: it may be there. Whether the affinity label belongs to another device is not looked
    at here."""
    if device.is_idle:
        return None
    there = {tenant.exclusion for tenant in device.tenants}
    if request.exclusion is not None and {request.exclusion} != there:
        return f"a job without exclusion:{request.exclusion} is there"
    if request.exclusion is None and device.exclusion:
        return f"only jobs with exclusion:{min(device.exclusion)} may be there"
    if request.anti_affinity in device.anti_affinity:
        return f"a job with anti-affinity:{request.anti_affinity} is there"
    return _apart(request, device)


def _apart(request: Request, device: Device) -> str | None:
    """Whom the device's mode keeps the tenant from, in words. Only MPS does (leased/mps)."""
    there = device.tenants
    if device.together == USER and any(one.user != request.user for one in there):
        return "under MPS only jobs of one user are on it at once, and one of another user is there"
    alone = request.chain is None
    if device.together == CHAIN and any(alone or one.chain != request.chain for one in there):
        return (
            "under MPS only jobs of one chain are on it at once, and one outside this job's chain "
            "is there"
        )
    return None


def _fault(request: Request, device: Device) -> str | None:
    """Why the tenant cannot be on the device; None: it can."""
    full = request.chain and sum(t.chain == request.chain for t in device.tenants) >= JOBS_MOST
    crowd = f"its chain has {JOBS_MOST} jobs there, the most" if full else None
    return conflict(request, device) or device.shortage(request) or crowd


def _beside_its_like(request: Request, devices: Sequence[Device]) -> Answer:
    """The device that has the label that it seeks. If several have it, as somebody was placed by
    other rules, the first that can take the tenant."""
    faults = [_fault(request, each) for each in devices]
    for device, fault in zip(devices, faults):
        if fault is None:
            return Placed(device)
    chain = request.chain[1] if request.chain else ""
    label = f"affinity:{request.affinity}" if request.affinity else f"chain:{chain}"
    return NoDevice(f"{label} is on {devices[0].name}, where the job cannot be: {faults[0]}")


def rank(device: Device) -> tuple[bool, bool, float, int]:
    """Of devices that can take the tenant the one with the lowest rank is chosen: the least that is
    left of one without an affinity label, then the most of one with a label, then an idle one."""
    left, labelled = (round(device.share, 6), device.memory), bool(device.affinity)
    share, memory = (-left[0], -left[1]) if labelled else left
    return device.is_idle, labelled, share, memory


def _reason(request: Request, devices: Sequence[Device]) -> str:
    """Why none of them can be had."""
    if not devices:
        return "there is no GPU that jobs share"
    if request.affinity is not None:
        return f"no GPU has affinity:{request.affinity} yet, and none is idle that could have it"
    return no_gpu([(each.name, _fault(request, each)) for each in devices])


def no_gpu(faults: Sequence[tuple[str, str | None]]) -> str:
    """That no GPU can take the job. faults: what each is called, or its node is, and why not."""
    shown = [f"{name}: {fault}" for name, fault in faults[:SHOWN]]
    more = f"; {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "no GPU can take the job; " + "; ".join(shown) + more

"""On small cases: labels and amounts always hold, and the choice is the one that a search over all
devices by the paper's rules finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leased.placement.api import CHAIN, TOGETHER, USER, Device, NoDevice, Placed, Request
from leased.placement.kubeshare import place
from tests.support.together import zip_strict

WHOLE = 10
LABELS = st.sampled_from([None, None, None, "a", "b"])
REQUESTS = st.builds(
    Request,
    share=st.integers(0, 10).map(lambda tenths: tenths / 10),
    memory=st.integers(0, 10),
    affinity=LABELS,
    anti_affinity=LABELS,
    exclusion=LABELS,
    user=st.sampled_from([1, 1, 2]),
)


def allowed(devices: list[Device], request: Request, chosen: int) -> bool:
    """Whether no rule is broken anywhere when the tenant has joined that device."""
    after = [d.joined(request) if n == chosen else d for n, d in enumerate(devices)]
    there = after[chosen].tenants
    tenths = sum(round(tenant.share * 10) for tenant in there)
    fits = tenths <= 10 and (not request.memory or sum(t.memory for t in there) <= WHOLE)
    alike = len({tenant.exclusion for tenant in there}) == 1
    apart = [t.anti_affinity for t in there if t.anti_affinity]
    together = [n for n, d in enumerate(after) for t in d.tenants if t.affinity]
    labels = [t.affinity for d in after for t in d.tenants if t.affinity]
    one_place = len(set(zip_strict(labels, together))) == len(set(labels))
    crowds = {USER: len({tenant.user for tenant in there}), CHAIN: len(there)}
    joined = crowds.get(devices[chosen].together, 1) == 1
    return fits and alike and len(apart) == len(set(apart)) and one_place and joined


def rank(device: Device, request: Request) -> tuple[int, float, int]:
    """Lower is better: used devices without an affinity label, those with one, idle ones."""
    left = round(device.share, 6), device.memory
    if request.affinity is not None:
        return 0, *left  # where it may be there is its label, or nothing
    if device.is_idle:
        return 2, *left
    return (1, -left[0], -left[1]) if device.affinity else (0, *left)


def may(devices: list[Device], request: Request, n: int) -> bool:
    """As `allowed`; a tenant that brings a new affinity label takes an idle device."""
    new = request.affinity is not None and all(request.affinity not in d.affinity for d in devices)
    return allowed(devices, request, n) and (not new or devices[n].is_idle)


@given(
    modes=st.lists(st.sampled_from(TOGETHER), min_size=1, max_size=4),
    requests=st.lists(REQUESTS, max_size=8),
)
def test_it_places_as_a_search_by_the_rules_does(modes: list[str], requests: list[Request]) -> None:
    number = len(modes)
    devices = [Device(str(n), WHOLE, together=mode) for n, mode in enumerate(modes)]
    for request in requests:
        possible = [n for n in range(number) if may(devices, request, n)]
        answer = place(request, devices)
        if not possible:
            assert isinstance(answer, NoDevice)
            continue
        assert isinstance(answer, Placed)
        best = min(possible, key=lambda n: rank(devices[n], request))
        assert answer.device == devices[best]
        devices[best] = devices[best].joined(request)


@given(requests=st.lists(REQUESTS, min_size=1, max_size=8), data=st.data())
def test_a_tenant_that_leaves_frees_the_room_that_it_took(
    requests: list[Request], data: st.DataObject
) -> None:
    before = Device("0", WHOLE, (), 12)
    for request in requests:
        before = before.joined(request)
    gone = data.draw(st.sampled_from(requests))
    after = before.left(gone)
    assert sorted(map(str, after.joined(gone).tenants)) == sorted(map(str, before.tenants))
    assert after.spare == 12 - len(requests) + 1

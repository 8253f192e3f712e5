"""No memory of a job leaves while another one of its chain may have it open."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.core.actions import Evict
from leased.leasing import memory_orders
from leased.leasing.tenant import Tenant
from leased.wire.device_bytes import DeviceBytes
from tests.connections.test_limits import GB, UUID
from tests.support.fake_client import FakeClient
from tests.support.given import given


def tenant(job: int) -> tuple[Tenant, FakeClient]:
    made, client = Tenant(job, 1000, given(swaps=True), {UUID: 100 * GB}), FakeClient(job)
    client.memory = {UUID: DeviceBytes(resident=GB, evictable=GB)}
    made.clients.append(client)
    return made, client


@pytest.mark.parametrize("turn", ["held", "passed"])
@pytest.mark.parametrize("borrows", [False, True])
def test_an_order_to_evict_waits_for_who_borrows(turn: str, borrows: bool) -> None:
    (owner, has), (other, opened) = tenant(1), tenant(2)
    opened.borrows = borrows
    setattr(opened, turn, 7)
    memory_orders.evict(owner, Evict(1, UUID, GB))
    memory_orders.send_evictions(owner, [owner, other])
    assert has.told == [lib.GL_EVICT] * (not borrows)
    setattr(opened, turn, 0)
    memory_orders.send_evictions(owner, [owner, other])
    assert has.told == [lib.GL_EVICT]

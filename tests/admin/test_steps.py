"""Further steps of a job: which GPUs they may add, and what each has had, after a restart too."""

from __future__ import annotations

import pytest

from leased.base.errors import Refused
from leased.node.checkpoint import Checkpoint
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage
from leased.wire.client_messages import Hello
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.node_requests import ROOT_PEER, UUIDS, Node

MIB = 1 << 20


def test_what_they_had_goes_on_after_a_restart_and_is_told_by_usage(node: Node) -> None:
    node.register(1)
    before = {"0": StepUsage(10.0, 15.0, {UUIDS[0]: Usage(time_ns=9, lease_ns=5, handoffs=2)})}
    node.store.save({1: {UUIDS[0]: Usage(time_ns=9, lease_ns=5, handoffs=2)}}, 1, steps={1: before})
    node.restart()
    tenant = node.leases.tenants[1]
    node.leases.tenants.steps.name_of = {4: "0", 5: "batch"}.__getitem__
    for pid in (4, 5):
        has = {UUIDS[0]: DeviceBytes(pid * MIB, 0, 0)}
        node.leases.clients.attach(tenant, FakeClient(pid), Hello(0, False, has))
    Checkpoint(node.leases, node.store).save_all()
    (record,) = node.store.open_tenants()
    assert record.steps["0"].since == 10.0
    found = {name: step.usage[UUIDS[0]] for name, step in record.steps.items()}
    assert (found["0"].lease_ns, found["0"].handoffs, found["0"].peak_bytes) == (5, 2, 4 * MIB)
    assert (found["batch"].lease_ns, found["batch"].peak_bytes) == (0, 5 * MIB)
    told = node.admin.handle({"op": "usage", "job_id": 1}, ROOT_PEER)
    assert told["steps"]["batch"]["gpus"] == {UUIDS[0]: {"peak_bytes": 5 * MIB}}
    node.store.close_tenant(1, *node.leases.tenants.close(1))
    ended = node.admin.handle({"op": "usage", "job_id": 1}, ROOT_PEER)
    assert set(ended["steps"]) == {"0", "batch"}
    assert ended["usage"][UUIDS[0]]["handoffs"] == 2


@pytest.mark.parametrize("text", ["sm:30%", "nonsense"])
def test_a_step_that_is_refused_leaves_its_job_as_it_was(node: Node, text: str) -> None:
    tenant = node.register(1)
    with pytest.raises(Refused):
        node.register(1, text, (1,))
    assert tenant.gang == (UUIDS[0],)
    assert [record.gang for record in node.store.open_tenants()] == [(UUIDS[0],)]


def test_an_offline_job_gets_no_further_gpu_that_is_not_well(node: Node) -> None:
    node.admin.registration.refuses_offline = {UUIDS[1]: "unhealthy, its clock is low"}.get
    node.register(1, "class:offline")
    with pytest.raises(Refused, match="GPU 1 takes no new offline jobs: it is unhealthy"):
        node.register(1, gpus=(1,))
    assert node.register(1).gang == (UUIDS[0],), "it keeps what it has"
    node.register(2)
    assert node.register(2, gpus=(1,)).gang == tuple(UUIDS)

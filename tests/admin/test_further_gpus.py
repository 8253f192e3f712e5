"""Further steps of a job that would have further GPUs."""

from __future__ import annotations

import pytest

from leased.base.errors import Refused
from tests.support.node_requests import UUIDS, Node


@pytest.fixture
def node(node: Node) -> Node:
    node.admin.registration.refuses_offline = {UUIDS[1]: "unhealthy, its clock is low"}.get
    return node


@pytest.mark.parametrize("text", ["sm:30%", "nonsense"])
def test_a_step_that_is_refused_leaves_its_job_as_it_was(node: Node, text: str) -> None:
    tenant = node.register(1)
    with pytest.raises(Refused):
        node.register(1, text, (1,))
    assert tenant.gang == (UUIDS[0],)
    assert [record.gang for record in node.store.open_tenants()] == [(UUIDS[0],)]


def test_an_offline_job_gets_no_further_gpu_that_is_not_well(node: Node) -> None:
    node.register(1, "class:offline")
    with pytest.raises(Refused, match="GPU 1 takes no new offline jobs: it is unhealthy"):
        node.register(1, gpus=(1,))
    assert node.register(1).gang == (UUIDS[0],), "it keeps what it has"
    node.register(2)
    assert node.register(2, gpus=(1,)).gang == tuple(UUIDS)

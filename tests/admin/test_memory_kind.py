"""Which kind of memory a job is given, and what it is told where it may not swap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leased.base.errors import Refused
from tests.support.node_requests import DEFAULTS, ROOT_PEER, STEP, Node


def kind(node: Node, job: int, options: str, memory_mib: int = 0) -> str:
    """Of the job's memory, once a step with so much host memory (0: no limit) has registered."""
    request = STEP | {"op": "register", "job_id": job, "options": options, "gpus": [0]}
    node.admin.handle(request | {"memory_mib": memory_mib}, ROOT_PEER)
    return node.leases.tenants[job].memory_kind


@pytest.mark.parametrize(
    ("options", "memory_mib", "words"),
    [
        ("memory:swap,lock:off", 0, "memory:swap does not go with lock:off"),
        ("memory:swap,oversub:on", 0, "memory:swap does not go with oversub:on"),
        ("memory:swap", 100, "GiB of host memory besides .*, and this step has 0.1"),
    ],
)
def test_a_job_that_may_not_swap_is_told_why(
    node: Node, options: str, memory_mib: int, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        kind(node, 1, options, memory_mib)
    assert kind(node, 1, "memory:swap,mem:64MiB") == "swap"


@pytest.mark.parametrize(
    ("options", "memory_mib", "wanted"),
    [
        ("memory:auto", 0, "swap"),
        ("memory:auto", 16 << 10, "swap"),
        ("memory:auto", 100, "managed"),
        ("memory:auto", 8100, "managed"),  # enough for the copies, not for the program too
        ("memory:auto,lock:off", 0, "managed"),
        ("oversub:on,memory:auto", 0, "managed"),
        ("memory:managed", 0, "managed"),
    ],
)
def test_auto_swaps_where_that_can_be(
    node: Node, options: str, memory_mib: int, wanted: str
) -> None:
    assert kind(node, 1, options, memory_mib) == wanted
    node.restart()
    assert node.leases.tenants[1].memory_kind == wanted


def test_auto_may_be_the_sites_default(node: Node) -> None:
    node.admin.config = replace(
        node.config, defaults=replace(DEFAULTS, memory="auto"), memory_chosen=True
    )
    assert [kind(node, 1, ""), kind(node, 2, "lock:off")] == ["swap", "managed"]


def test_a_site_may_forbid_it(node: Node) -> None:
    node.admin.config = replace(node.config, swap=False)
    with pytest.raises(Refused, match="memory:swap is not allowed on this site"):
        kind(node, 1, "memory:swap")
    assert kind(node, 1, "memory:managed") == "managed"


@pytest.mark.parametrize(
    ("options", "wanted", "why"),
    [
        ("", "swap", "the node has host memory for what leaves the GPU"),
        ("memory:auto", "swap", "the node has host memory for what leaves the GPU"),
        ("lock:off", "managed", "memory:swap does not go with lock:off"),
        ("oversub:on", "managed", "memory:swap does not go with oversub:on"),
        ("memory:managed", "managed", "the job's options or the site's ask for it"),
    ],
)
def test_memory_is_swapped_wherever_the_node_has_host_memory_for_it(
    node: Node, options: str, wanted: str, why: str
) -> None:
    """Whatever the job's --mem is."""
    node.leases.tenants.offers_host = lambda: True
    assert kind(node, 1, options, 10) == wanted
    assert node.leases.tenants[1].memory_why.startswith(why)

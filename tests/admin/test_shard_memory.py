"""Shards that stand for memory: what a job may have for its own (device.mem_per_shard)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leased.base.errors import Refused
from leased.config import config, options
from leased.config.config import DeviceConfig
from tests.support.node_requests import DEFAULTS, GIB, ROOT_PEER, STEP, UUIDS, Node


def fence(node: Node, each: str, of_second: str = "") -> None:
    devices = {UUIDS[1]: DeviceConfig(mem_per_shard=of_second)} if of_second else {}
    node.config = replace(node.config, device=DeviceConfig(mem_per_shard=each), devices=devices)
    node.admin.config = node.config


@pytest.mark.parametrize(
    ("each", "has", "gib"),
    [
        ("1GiB", {"shards": 3}, [3]),
        ("25%", {"shards": 2, "shards_of": [2]}, [4]),
        ("1GiB", {"shards": 3, "gpus": [0, 1], "shards_of": [1, 2]}, [1, 2]),
        ("1GiB", {"shards": 4, "gpus": [1, 0]}, [2, 2]),  # an older plugin does not say which
        ("512MiB", {"options": "mem:1GiB", "shards": 4}, [1]),
    ],
)
def test_a_job_sees_the_memory_of_its_shards(
    node: Node, each: str, has: dict[str, Any], gib: list[int]
) -> None:
    fence(node, each)
    assert list(node.register(7, **has).totals.values()) == [n * GIB for n in gib]


def test_shards_that_stand_for_more_than_the_gpu_fence_nothing(node: Node) -> None:
    plain = node.register(7, shards=2).totals
    node.leases.tenants.close(7)
    fence(node, "100%")
    assert node.register(7, shards=2).totals == plain


def test_gpus_differ(node: Node) -> None:
    fence(node, "1GiB", "3GiB")
    totals = node.register(7, shards=2, gpus=[0, 1], shards_of=[1, 1]).totals
    assert totals == {UUIDS[0]: GIB, UUIDS[1]: 3 * GIB}


@pytest.mark.parametrize(
    ("text", "sentence", "remedy"),
    [
        ("mem:3GiB", "mem asks for 3.0 GiB, more than the 2.0 GiB of GPU 0", "--gres=shard:3,"),
        ("mem:60%", "mem asks for 4.8 GiB, more than the 2.0 GiB of GPU 0", "--gres=shard:5,"),
        ("oversub:on", "oversub:on does not go with the 2.0 GiB of GPU 0 that its 2 shards", "out"),
    ],
)
def test_what_asks_for_more_is_refused_with_what_to_ask_for(
    node: Node, text: str, sentence: str, remedy: str
) -> None:
    fence(node, "1GiB")
    with pytest.raises(Refused, match=sentence) as said:
        node.register(7, text, shards=2)
    assert remedy in said.value.hint
    assert not node.leases.tenants


def test_mem_of_the_sites_defaults_is_no_wish_of_the_job(node: Node) -> None:
    fence(node, "1GiB")
    node.config = replace(node.config, defaults=options.parse("mem:50%").over(DEFAULTS))
    node.admin.config = node.config
    assert node.register(7, shards=2).totals == {UUIDS[0]: 2 * GIB}


def test_a_restart_and_another_value_leave_a_job_what_it_was_told(node: Node) -> None:
    fence(node, "1GiB")
    node.register(7, shards=2)
    fence(node, "2GiB")
    node.restart()
    assert node.leases.tenants[7].totals == {UUIDS[0]: 2 * GIB}


def test_status_says_what_a_shard_stands_for(node: Node) -> None:
    fence(node, "1GiB", "25%")
    node.register(7, shards=2)
    answer: Any = node.admin.handle({"op": "status"}, ROOT_PEER)
    assert [device["mem_per_shard_bytes"] for device in answer["devices"]] == [GIB, 2 * GIB]
    assert answer["tenants"][0]["total_bytes"] == {UUIDS[0]: 2 * GIB}


def test_the_kernel_is_told_what_a_job_may_have_where_the_site_wants_it(node: Node) -> None:
    fence(node, "1GiB")
    request = {"op": "register", "job_id": 7, "options": "", "gpus": [0, 1]} | STEP
    for gpu in node.leases.gpus:
        node.leases.gpus.by_uuid[gpu.uuid] = replace(gpu, pci=f"0000:0{gpu.index}:00.0")
    assert "dmem" not in node.admin.handle(request | {"job_id": 8}, ROOT_PEER)
    node.config = node.admin.config = replace(node.config, dmem=True)
    told = node.admin.handle(request | {"shards_of": [2, 9], "shards": 11}, ROOT_PEER)["dmem"]
    contexts = 8 * 2 * node.leases.gpus.overheads[UUIDS[0]].first
    assert told == {"0000:00:00.0": 2 * GIB + contexts}, "of the second it has all"


def test_a_site_cannot_fence_memory_and_let_every_job_pass_the_fence() -> None:
    with pytest.raises(Refused, match="has oversub:on, and device"):
        config.from_dict(
            {"defaults": {"options": "oversub:on"}, "device": {"0": {"mem_per_shard": "1GiB"}}}
        )
    with pytest.raises(Refused, match="mem_per_shard"):
        config.from_dict({"device": {"mem_per_shard": "0%"}})

"""Sentences of status about the jobs' memory: its kind, what is fixed, and what is clean."""

from __future__ import annotations

from collections.abc import Iterator

from leased.api.answers import Status, Tenant
from leased.base.words import grouped, size

KINDS = {"swap": "swapped", "managed": "managed"}
# Why memory is fixed (leased/wire/client_messages.py).
FIXED = {
    "shared": "shared with other processes",
    "unhosted": "without host memory for a copy",
    "mapped": "mapped by the program in a way that cannot be moved",
    "other": "of arrays, of graphs or that the driver cannot copy",
}


AMOUNTS = 4  # of memory of one GPU, that are named one by one


def kinds(answer: Status) -> list[str]:
    """Which kind of memory jobs have, and why, if that is still known after a restart."""
    said = (
        (tenant["job"], f"{KINDS.get(tenant['memory'], tenant['memory'])} memory: {why}")
        for tenant in answer["tenants"]
        if (why := tenant.get("memory_why"))
    )
    return [f"{who} {'have' if many else 'has'} {words}" for who, many, words in grouped(said)]


def fences(answer: Status) -> Iterator[str]:
    """What shards stand for of each GPU, and what its jobs may have for theirs."""
    for device in answer["devices"]:
        each = device.get("mem_per_shard_bytes")
        if each is None:
            continue
        found = [
            (tenant["job"], total)
            for tenant in answer["tenants"]
            if (total := tenant.get("total_bytes", {}).get(device["uuid"])) is not None
        ]
        found.sort(key=lambda one: one[1])
        parts = [f"{who} may have {size(total)}" for who, _, total in grouped(found)]
        if len(parts) > AMOUNTS:
            parts = [f"its jobs may have {size(found[0][1])} to {size(found[-1][1])}"]
        head = f"a shard of GPU {device['index']} stands for {size(each)} of its memory"
        yield f"{head}: {', '.join(parts)}" if parts else head


def fixed(answer: Status) -> list[str]:
    """What stays on the devices even while its job has no lease."""
    index = {d["uuid"]: d["index"] for d in answer["devices"]}
    return [
        f"job {tenant['job']}: of GPU {index.get(uuid, '?')} "
        + ", ".join(f"{size(n)} {FIXED.get(why, why)}" for why, n in sizes.items())
        + " cannot leave"
        for tenant in answer["tenants"]
        for uuid, sizes in tenant.get("fixed", {}).items()
    ]


def clean(answer: Status) -> list[str]:
    """Whether clean memory is evicted without being copied again, if there is something to say."""
    return [line for tenant in answer["tenants"] for line in _clean(tenant)]


def _clean(tenant: Tenant) -> Iterator[str]:
    found = tenant.get("clean")
    if found is None:
        return
    if found["left_bytes"]:
        left = size(found["left_bytes"])
        yield f"job {tenant['job']}: {left} were evicted without being copied again"
    if found["state"] == "off":
        yield f"job {tenant['job']}: clean memory is copied all the same: {found['why']}"

"""Sentences about what GPUs are used for: chains, MPS, and their memory."""

from __future__ import annotations

from collections.abc import Iterator

from leased.api.answers import Chain, Device, Mps, Status, Tenant, jobs_on
from leased.base.words import count, grouped, jobs, size

NAMED = 6  # components of a chain
CHANNELS = "its server has the channel groups, so that no time slice is set and no kernel stopped"
WHOSE = {
    "user": "jobs of one user at a time",
    "chain": "jobs of one chain at a time",
    "any": "jobs of any users",
}
KINDS = {"swap": "swapped", "managed": "managed"}
# Why memory is fixed (leased/wire/client_messages.py).
FIXED = {
    "shared": "shared with other processes",
    "unhosted": "without host memory for a copy",
    "mapped": "mapped by the program in a way that cannot be moved",
    "other": "of arrays, of graphs or that the driver cannot copy",
}
AMOUNTS = 4  # of memory of one GPU, that are named one by one


def chains(answer: Status) -> list[str]:
    """For each such GPU what the last search found, and how the chain's components divide it. What
    was found stands first: top shows as much of a line as there is room for."""
    return [
        f"GPU {device['index']}: chain {chain['name']}{_search_of(chain)}: {chain['why']}"
        + _components(chain)
        for device in answer["devices"]
        if (chain := device.get("chain"))
    ]


def _search_of(chain: Chain) -> str:
    words = f" is {chain['gain']:.1%} faster divided than plain" if chain["gain"] else ""
    if chain["trials"]:
        words += f" ({len(chain['trials'])} of at most {chain['bound']} trials)"
    if chain["calls_s"] is not None:
        words += f", {chain['calls_s']:.1f} calls a second of its last component"
    return words


def _components(chain: Chain) -> str:
    if not chain["components"]:
        return ""
    n = f"; it has {count(len(chain['components']), 'component')}"
    if all(one["part"] == 1 for one in chain["components"]):
        return n
    parts = ", ".join(
        f"process {one['pid']} of job {one['job']} {one['part']:.0%}"
        for one in chain["components"][:NAMED]
    )
    more = len(chain["components"]) - NAMED
    parts += f" and {count(more, 'other')}" if more > 0 else ""
    whole = "multiprocessors" if chain["by"] == "parts" else "GPU"
    return f"{n}, which have of the {whole} at most: {parts}"


def mps(answer: Status) -> list[str]:
    """How each GPU that is shared by MPS is."""
    found = []
    for device in answer["devices"]:
        if (of := device.get("mps")) is not None:
            whose = WHOSE.get(of["together"], of["together"])
            words = f"GPU {device['index']} is shared by MPS, by {whose}; {CHANNELS}"
            there = [t for t in jobs_on(device, answer) if t.get("space") == "mps"]
            parts = ((t["job"], f"{t['sm']:.0%}") for t in there if t.get("sm", 1.0) < 1)
            of_sms = [f"{who} {part}{' each' * many}" for who, many, part in grouped(parts)]
            found.append(words + (f"; multiprocessors: {', '.join(of_sms)}" if of_sms else ""))
    return found + mps_troubles(answer)


def mps_troubles(answer: Status) -> list[str]:
    """What has gone wrong with MPS since the daemon began."""
    return [
        words
        for device in answer.get("devices", [])
        if (mps := device.get("mps")) is not None
        for words in _troubles(device, mps)
    ]


def _troubles(device: Device, mps: Mps) -> list[str]:
    index, found = device["index"], []
    if mps["why"] is not None:
        found.append(f"GPU {index} takes no new jobs, as MPS does not run there: {mps['why']}")
    if mps["ended"]:
        found.append(f"MPS of GPU {index} has ended by itself {count(mps['ended'], 'time')}")
    if mps["faults"]:
        lost = jobs(mps["lost"]) if mps["lost"] else "none"
        found.append(
            f"GPU {index}: {count(mps['faults'], 'fault')} of one process ended the work of all "
            f"under MPS; the last time the jobs there were {lost}"
        )
    return found


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

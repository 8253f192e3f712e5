"""Sentences about GPUs that are shared by MPS."""

from __future__ import annotations

from leased.api.answers import Device, Mps, Status, devices_of
from leased.base.words import count, grouped, jobs

CHANNELS = "its server has the channel groups, so that no time slice is set and no kernel stopped"

WHOSE = {
    "user": "jobs of one user at a time",
    "chain": "jobs of one chain at a time",
    "any": "jobs of any users",
}


def lines(answer: Status) -> list[str]:
    """How each GPU that is shared by MPS is."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for tenant in answer["tenants"]:
        if tenant.get("space") == "mps" and tenant.get("sm", 1.0) < 1:
            for uuid in devices_of(tenant):
                parts.setdefault(uuid, []).append((tenant["job"], f"{tenant['sm']:.0%}"))
    found = []
    for device in answer["devices"]:
        mps = device.get("mps")
        if mps is not None:
            whose = WHOSE.get(mps["together"], mps["together"])
            words = f"GPU {device['index']} is shared by MPS, by {whose}; {CHANNELS}"
            each = grouped(parts.get(device["uuid"], []))
            of_sms = [f"{who} {part}{' each' * many}" for who, many, part in each]
            found.append(words + (f"; multiprocessors: {', '.join(of_sms)}" if of_sms else ""))
    return found + troubles(answer)


def troubles(answer: Status) -> list[str]:
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

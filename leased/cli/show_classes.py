"""Sentences about online and offline jobs."""

from __future__ import annotations

from leased.api.answers import Status, devices_of
from leased.base.words import grouped

NOT_WELL = ("unhealthy", "overlimit")


def lines(answer: Status) -> list[str]:
    """For each GPU its online and offline jobs, and by how much the first are slowed down."""
    found = []
    for device in answer["devices"]:
        there = [t for t in answer["tenants"] if device["uuid"] in devices_of(t)]
        classed = [(t["job"], its) for t in there if (its := t.get("job_class", "none")) != "none"]
        words = [f"{who} {'are' if many else 'is'} {its}" for who, many, its in grouped(classed)]
        slowdown = device.get("online_slowdown")
        if words and slowdown is not None:
            words.append(f"online work takes {max(0.0, slowdown):.1%} longer than alone")
        if words:
            found.append(f"GPU {device['index']}: {', '.join(words)}")
    return found + not_well(answer)


def not_well(answer: Status) -> list[str]:
    """The GPUs that are not well for offline jobs, and why."""
    return [
        f"GPU {device['index']} is {health['state']} for offline jobs: {health['why']}"
        for device in answer.get("devices", [])
        if (health := device.get("offline_health")) and health["state"] in NOT_WELL
    ]


def option(job_class: str | None) -> str:
    """As it stands among a job's options; "": it has no class."""
    return f", class:{job_class}" if job_class and job_class != "none" else ""

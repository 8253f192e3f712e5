"""Sentences about jobs on several nodes."""

from __future__ import annotations

from leased.api.answers import OnNodes, Status
from leased.base.words import jobs


def lines(answer: Status) -> list[str]:
    """For each what it does on its nodes, as far as this one knows, and what it waits for."""
    return [
        f"job {tenant['job']} is on several nodes: {_nodes(found)}"
        + (f"; {found['why']}" if found["why"] else "")
        for tenant in answer["tenants"]
        if (found := tenant.get("on_nodes"))
    ]


def _nodes(found: OnNodes) -> str:
    alike: dict[str | None, list[str]] = {}
    for node, does in found["nodes"].items():
        alike.setdefault(does, []).append(node)
    return ", ".join(jobs(names) + (f" ({does})" if does else "") for does, names in alike.items())

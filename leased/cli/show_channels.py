"""Sentences about the GPU's time slices of jobs."""

from __future__ import annotations

from leased.api.answers import Status


def lines(answer: Status) -> list[str]:
    """The jobs whose time slices the daemon cannot choose, and why."""
    return [
        f"job {tenant['job']}: its time slices are the driver's "
        f"({said['processes']} of {tenant['clients']} processes): {said['why']}"
        for tenant in answer.get("tenants", [])
        if (said := tenant.get("channels")) is not None and said["state"] == "refused"
    ]

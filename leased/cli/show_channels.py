"""Sentences about the GPU's time slices of jobs."""

from __future__ import annotations

from leased.api.answers import Slices, Status, Tenant
from leased.base.words import count, grouped


def lines(answer: Status) -> list[str]:
    """The jobs whose time slices the daemon cannot choose, and why; whose work could not be stopped
    in mid-kernel; and what has been chosen."""
    index = {device["uuid"]: device["index"] for device in answer["devices"]}
    said = (
        (tenant["job"], f"{_words(chosen)} of GPU {index.get(uuid, '?')}: {chosen['why']}")
        for tenant in answer["tenants"]
        for uuid, chosen in _chosen(tenant).items()
    )
    slices = [f"{who} {'have' if many else 'has'} {words}" for who, many, words in grouped(said)]
    return uncontrolled(answer) + _given_up(answer) + slices


def uncontrolled(answer: Status) -> list[str]:
    """The jobs whose time slices the daemon cannot choose, and why. Those under MPS are left out:
    show_mps.py says it of their GPUs."""
    of_jobs = (
        (
            tenant["job"],
            f"({said['processes']} of {count(tenant['clients'], 'process')}): {said['why']}",
        )
        for tenant in answer.get("tenants", [])
        if (said := tenant.get("channels")) is not None
        and said["state"] == "refused"
        and tenant.get("space") != "mps"
    )
    return [
        f"{who}: {'their' if many else 'its'} time slices are the driver's {words}"
        for who, many, words in grouped(of_jobs)
    ]


def _given_up(answer: Status) -> list[str]:
    """The jobs whose work was waited for at handoffs, since it could not be stopped."""
    return [
        f"job {tenant['job']}: {count(said['given_up'], 'time')} its work could not be stopped in "
        f"mid-kernel and was waited for: {said['why_given_up']}"
        for tenant in answer.get("tenants", [])
        if (said := tenant.get("channels")) is not None and said["given_up"]
    ]


def _chosen(tenant: Tenant) -> dict[str, Slices]:
    """By device, what is not as the driver made it."""
    return {
        uuid: chosen
        for uuid, chosen in tenant.get("slices", {}).items()
        if chosen["slice_s"] is not None or chosen["duty"] < 1
    }


def _words(chosen: Slices) -> str:
    slice_s = chosen["slice_s"]
    words = "the driver's time slices" if slice_s is None else f"time slices of {_short(slice_s)}"
    return words if chosen["duty"] == 1 else f"{words} in {chosen['duty']:.1%} of the time"


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"

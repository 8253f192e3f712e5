"""Sentences about jobs: how they share the time of GPUs, on which nodes they are, and whose usage
waits."""

from __future__ import annotations

from leased.api.answers import OnNodes, Share, Slices, Status, Tenant, jobs_on
from leased.base.words import count, grouped, jobs

NOT_WELL = ("unhealthy", "overlimit")


def shares(answer: Status) -> list[str]:
    """For each GPU what its jobs request of it, and what is to be said of single jobs."""
    found = {t["job"]: s for t in answer["tenants"] if (s := t.get("share")) is not None}
    said = ((job, words) for job, share in found.items() for words in of_share(share))
    of_jobs = [f"{who}{': each' * many} {words}" for who, many, words in grouped(said)]
    return [*_requested(answer, found), *of_jobs]


def _requested(answer: Status, shares: dict[str, Share]) -> list[str]:
    found = []
    for device in answer["devices"]:
        there = [t["job"] for t in jobs_on(device, answer)]
        each = ((job, _named(shares[job])) for job in there if job in shares)
        words = [f"{who} {named}{' each' * many}" for who, many, named in grouped(each)]
        if words:
            requested = device.get("requested", 0.0)
            found.append(
                f"GPU {device['index']}: {requested:g} of its time is requested: {', '.join(words)}"
            )
    return found


def _named(share: Share) -> str:
    least, most = f"{share['request']:g} at least", f"{share['limit']:g} at most"
    if share["limit"] >= 1:
        return least
    return f"{least}, {most}" if share["request"] else most


def of_share(share: Share) -> list[str]:
    """What is to be said of one job's share now."""
    found = []
    if share["lacking"] is not None:
        found.append(
            f"waits for its share: {share['lacking']}; it goes on when enough of them have ended"
        )
    if share["limited_s"] is not None:
        found.append(
            f"is at its limit of {share['limit']:g} and may go on in {share['limited_s']:.1f} s"
        )
    if share["turn_s"] is not None:
        found.append(
            f"has turns of {share['turn_s']:g} s at least, whatever tq says, since its memory "
            "takes a twentieth of that to move; its share holds over correspondingly longer times"
        )
    return found


def classes(answer: Status) -> list[str]:
    """For each GPU its online and offline jobs, and by how much the first are slowed down."""
    found = []
    for device in answer["devices"]:
        there = jobs_on(device, answer)
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


def class_option(job_class: str | None) -> str:
    """As it stands among a job's options; "": it has no class."""
    return f", class:{job_class}" if job_class and job_class != "none" else ""


def time_slices(answer: Status) -> list[str]:
    """The jobs whose time slices the daemon cannot choose, and why; whose work could not be stopped
    in mid-kernel; and what has been chosen."""
    index = {device["uuid"]: device["index"] for device in answer["devices"]}
    said = (
        (tenant["job"], f"{_slices(chosen)} of GPU {index.get(uuid, '?')}: {chosen['why']}")
        for tenant in answer["tenants"]
        for uuid, chosen in _chosen(tenant).items()
    )
    slices = [f"{who} {'have' if many else 'has'} {words}" for who, many, words in grouped(said)]
    return uncontrolled(answer) + _given_up(answer) + slices


def uncontrolled(answer: Status) -> list[str]:
    """The jobs whose time slices the daemon cannot choose, and why. Those under MPS are left out:
    mps() of show_gpus.py says it of their GPUs."""
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


def _slices(chosen: Slices) -> str:
    slice_s = chosen["slice_s"]
    words = "the driver's time slices" if slice_s is None else f"time slices of {_short(slice_s)}"
    return words if chosen["duty"] == 1 else f"{words} in {chosen['duty']:.1%} of the time"


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def nodes(answer: Status) -> list[str]:
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


def usage_waiting(answer: Status) -> str:
    """The jobs whose usage has waited for longer than a minute, and why; "": there is none."""
    found = answer.get("usage_waiting")
    if not found or not found["runs"]:
        return ""
    said = [
        f"job {one['job']}, which ended {one['since_s']:.0f} s ago: {one['why']}"
        for one in found["first"]
    ]
    more = found["runs"] - len(said)
    return "; ".join([*said, f"and {count(more, 'other')}"] if more > 0 else said)

"""Sentences about the shares of GPUs' time that jobs have."""

from __future__ import annotations

from leased.api.answers import Share, Status, devices_of
from leased.base.words import grouped


def lines(answer: Status) -> list[str]:
    """For each GPU what its jobs request of it, and what is to be said of single jobs."""
    shares = {t["job"]: s for t in answer["tenants"] if (s := t.get("share")) is not None}
    said = ((job, words) for job, share in shares.items() for words in of_share(share))
    of_jobs = [f"{who}{': each' * many} {words}" for who, many, words in grouped(said)]
    return [*_requested(answer, shares), *of_jobs]


def _requested(answer: Status, shares: dict[str, Share]) -> list[str]:
    found = []
    for device in answer["devices"]:
        there = [t["job"] for t in answer["tenants"] if device["uuid"] in devices_of(t)]
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

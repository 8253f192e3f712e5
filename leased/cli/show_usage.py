"""Words about usage that Slurm's accounting does not have yet."""

from __future__ import annotations

from leased.api.answers import Status
from leased.base.words import count


def waiting(answer: Status) -> str:
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

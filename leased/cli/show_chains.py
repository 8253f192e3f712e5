"""Sentences about chains that have a GPU for themselves."""

from __future__ import annotations

from leased.api.answers import Chain, Status
from leased.base.words import count

NAMED = 6  # components


def lines(answer: Status) -> list[str]:
    """For each such GPU what the last search found, and how the chain's components divide it. What
    was found stands first: top shows as much of a line as there is room for."""
    return [
        f"GPU {device['index']}: chain {chain['name']}{_found(chain)}: {chain['why']}"
        + _components(chain)
        for device in answer["devices"]
        if (chain := device.get("chain"))
    ]


def _found(chain: Chain) -> str:
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

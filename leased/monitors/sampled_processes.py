"""Whether a stopped job runs again, found by looking at a few of its processes at a time.

A job can be suspended for days and have many processes, so not all of them are looked at each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leased.leasing.tenant import Client

SAMPLE = 8  # processes of a job that are looked at in one beat


def one_runs(processes: Sequence[Client], beat: int, still: Callable[[int], bool]) -> bool:
    """Whether one of the next SAMPLE processes can act, or none is left.

    beat: the number of this beat. still: whether the process of a pid cannot act.
    """
    first = SAMPLE * beat % max(1, len(processes))
    sample = [*processes[first:], *processes[:first]][:SAMPLE]
    return not sample or any(not still(client.pid) for client in sample)

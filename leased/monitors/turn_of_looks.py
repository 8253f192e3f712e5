"""Whether a job that stands still runs again. Jobs are suspended for days, with many processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leased.leasing.tenant import Client

SOME = 8  # processes of a job that are looked at in one beat


def one_runs(processes: Sequence[Client], beat: int, still: Callable[[int], bool]) -> bool:
    """Whether one of the processes can act, or none is left; in each beat SOME are looked at.

    beat: the number of this one. still: whether the process of a pid cannot act.
    """
    first = SOME * beat % max(1, len(processes))
    some = [*processes[first:], *processes[:first]][:SOME]
    return not some or any(not still(client.pid) for client in some)

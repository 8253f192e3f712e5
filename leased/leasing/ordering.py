"""What the protocol between the daemons of a job's nodes (leased/across) wants of the arbiter, and
what the arbiter answers (leased/core/orders.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from leased.across import actions as across
from leased.core import orders

# What has to do with the arbiter.
OfArbiter = Union[across.Line, across.Hold, across.Run, across.Stop, across.Free]

ORDERS: dict[type, str] = {
    across.Line: orders.LINE,
    across.Hold: orders.HOLD,
    across.Run: orders.RUN,
    across.Stop: orders.STOP,
}
ANSWERS: dict[str, Callable[[str], across.Event]] = {
    orders.READY: lambda job: across.Ready(job, True),
    orders.UNREADY: lambda job: across.Ready(job, False),
    orders.HELD: across.Held,
    orders.STOPPED: across.Stopped,
    orders.ENDS: across.EndWanted,
}


def order_of(action: OfArbiter) -> str:
    """What the arbiter is ordered to do."""
    if isinstance(action, across.Free):
        return orders.BACK if action.lined else orders.REST
    return ORDERS[type(action)]


def event_of(answer: str, job: str) -> across.Event:
    """What the arbiter's answer about the job is for the protocol."""
    return ANSWERS[answer](job)

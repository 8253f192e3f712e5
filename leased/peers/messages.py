"""Orders and reports as bytes: a letter and the fields, in JSON."""

from __future__ import annotations

import json
from typing import Any

from leased.across.messages import LAST_STAMP, Message, Order, Phase, Report, State

LETTERS: dict[str, type[Order] | type[Report]] = {"o": Order, "r": Report}
LAST = 1 << 63
JOB_LONGEST = 20  # characters


def to_bytes(message: Message) -> bytes:
    letter = "o" if isinstance(message, Order) else "r"
    return json.dumps([letter, *message], separators=(",", ":")).encode()


def of_bytes(data: bytes) -> Message:
    """ValueError: it is no message."""
    try:
        letter, job, *fields = json.loads(data)
        kind = LETTERS[letter]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("what came is no message") from None
    if len(fields) != len(kind._fields) - 1 or not isinstance(job, str) or len(job) > JOB_LONGEST:
        raise ValueError("a message has other fields")
    if not (job.isascii() and job.isdecimal()):
        raise ValueError("a message is of no job")
    if kind is Order:
        epoch, turn, phase, vote = map(_whole, fields[:4])
        return Order(job, epoch, turn, Phase(phase), vote, _stamp(fields[4]))
    epoch, turn, state, vote = map(_whole, fields[:4])
    wants, ready, ends, yields = map(_truth, fields[4:8])
    return Report(
        job, epoch, turn, State(state), vote, wants, ready, ends, yields, _stamp(fields[8])
    )


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LAST:
        raise ValueError("a field of a message is no number")
    return value


def _stamp(value: Any) -> int:
    if _whole(value) > LAST_STAMP:
        raise ValueError("a stamp of a message is no number of one")
    return int(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("a field of a message is no truth value")
    return value

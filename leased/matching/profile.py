"""What is known of a program from its runs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NAME_MOST = 256  # characters of a job's name that count


class Kind(NamedTuple):
    """Jobs that are taken to be one program: of one user, with one name."""

    uid: int
    name: str


@dataclass(frozen=True)
class Profile:
    """busy: the part of its time in which it had work on the device, from 0 to 1. memory: the most
    that it had at once, in bytes. burst_ms: for how long it works until it pauses, on average;
    None: nothing has measured it.
    """

    busy: float
    memory: int = 0
    burst_ms: float | None = None

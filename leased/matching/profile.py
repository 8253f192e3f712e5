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
    """busy: the part of its time in which the device worked for it, from 0 to 1. memory: bytes, the
    most that it had at once. None, where nothing has measured it: kernel_ms: how long its kernels
    are on average; bandwidth: the part of the device's memory bandwidth that it used, over all of
    its time; copies: the part of the link's that its copies used.
    """

    busy: float
    memory: int = 0
    kernel_ms: float | None = None
    bandwidth: float | None = None
    copies: float | None = None

    @property
    def is_whole(self) -> bool:
        return None not in (self.kernel_ms, self.bandwidth, self.copies)

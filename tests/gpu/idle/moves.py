"""What interposers tell of memory that moves, with GPU_LEASE_DEBUG, and when."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

GIB = 1 << 30
LINE = re.compile(
    r"gpu-lease\[\d+\]: (\d+\.\d+) (?:hears (\w+)|(evicted|restored) (\d+) KiB, copied (\d+))"
)
ORDERS = ("EVICT", "LEAVE")  # the daemon's messages on which memory leaves


@dataclass(frozen=True)
class Event:
    """at: seconds of the monotonic clock. what: a message's name, "evicted" or "restored".

    size, copied: bytes in all, and those that went over the link.
    """

    at: float
    what: str
    size: int = 0
    copied: int = 0


def read_events(said: str) -> list[Event]:
    """All that a job's standard error tells."""
    return [
        Event(float(at), heard or moved, int(size or 0) << 10, int(copied or 0) << 10)
        for at, heard, moved, size, copied in LINE.findall(said)
    ]


@dataclass(frozen=True)
class Moved:
    """Bytes of one kind between two moments. seconds: from the first order to the last byte."""

    size: int
    copied: int
    seconds: float


def moved(events: Iterable[Event], what: str, since: float, until: float) -> Moved:
    """what: "evicted" or "restored". The order for the latter is the grant."""
    orders = ORDERS if what == "evicted" else ("GRANT",)
    within = [event for event in events if since <= event.at <= until]
    ends = [event for event in within if event.what == what]
    begins = [event.at for event in within if event.what in orders]
    seconds = ends[-1].at - begins[0] if ends and begins else 0.0
    return Moved(sum(e.size for e in ends), sum(e.copied for e in ends), seconds)


@dataclass(frozen=True)
class Link:
    """GiB/s to the device, to the host, and of both directions together."""

    into: float
    out: float
    duplex: float

    def seconds(self, bytes_in: float, bytes_out: float = 0) -> float:
        """What so many bytes need at least."""
        both = (bytes_in + bytes_out) / self.duplex
        return max(bytes_in / self.into, bytes_out / self.out, both) / GIB

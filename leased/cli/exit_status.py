"""The exit statuses of gpu-leasectl, which docs/gpu-leasectl.md lists for scripts."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Why gpu-leasectl ended."""

    DONE = 0
    REFUSED = 1  # check: a fault was found
    USAGE = 2
    NO_ANSWER = 3
    TOO_LATE = 4
    INTERRUPTED = 130  # as shells have it for SIGINT

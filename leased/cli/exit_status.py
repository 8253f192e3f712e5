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


# For people, in --help and in the manual page.
MEANINGS = {
    ExitStatus.DONE: "done",
    ExitStatus.REFUSED: "refused; check: a fault was found",
    ExitStatus.USAGE: "wrong usage",
    ExitStatus.NO_ANSWER: "the daemon does not answer; report: slurmdbd does not",
    ExitStatus.TOO_LATE: "drain --wait: a job still holds the device after --timeout",
    ExitStatus.INTERRUPTED: "interrupted (top ends with 0)",
}

"""What the daemons of a failed test wrote last, which its report shows.

Their files are gone with the test, and most failures on somebody else's machine cannot be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.slurm.processes import Daemon

LINES = 40  # of each daemon


def sections() -> Iterator[tuple[str, str]]:
    """A title and the last lines of each daemon that has written any; the last started first."""
    for daemon in reversed(Daemon.with_logs()):
        if text := daemon.tail(LINES):
            yield f"the last lines of {daemon.name}: {daemon.log}", text

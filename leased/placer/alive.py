"""The file by which gpu_share.lua knows that the placer runs, and puts off jobs for it alone then.

    UNTIL HOLD

UNTIL: until when it counts, seconds since 1970; HOLD: for how many seconds a job is put off.
"""

from __future__ import annotations

from pathlib import Path

NAME = "alive"
VALID_S = 30  # longer than slurmctld takes to answer when it is busy


def write(folder: Path, now: int, hold_s: int) -> None:
    """OSError: it cannot be written."""
    beside = folder / f"{NAME}.new"
    beside.write_text(f"{now + VALID_S} {hold_s}\n")
    beside.chmod(0o644)
    beside.replace(folder / NAME)


def remove(folder: Path) -> None:
    (folder / NAME).unlink(missing_ok=True)

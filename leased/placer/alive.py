"""The file that tells gpu_share.lua that the placer runs. Only then are jobs put off for it.

    UNTIL HOLD

UNTIL: until when the file is valid, in seconds since 1970; HOLD: for how many seconds a job is put
off.
"""

from __future__ import annotations

import re
from pathlib import Path

from leased.base import text_file

NAME = "alive"
LONGEST_S = 120  # the same as LONGEST_ALIVE in gpu_share.lua
VALID_S = 90  # longer than a rest of the placer and its next look, where slurmctld is busy


def write(folder: Path, now: int, hold_s: int) -> None:
    """Write the file, valid from now on. OSError: it cannot be written."""
    text_file.replace(folder / NAME, f"{now + VALID_S} {hold_s}\n", 0o644)


def counts(folder: Path, now: int) -> bool | None:
    """Whether gpu_share.lua puts jobs off because of the file; None: there is no file. OSError: it
    cannot be read."""
    try:
        said = re.fullmatch(rb"([0-9]{1,19}) ([0-9]{1,19})\n", (folder / NAME).read_bytes()[:64])
    except FileNotFoundError:
        return None
    return said is not None and 0 <= int(said[1]) - now <= LONGEST_S


def remove(folder: Path) -> None:
    (folder / NAME).unlink(missing_ok=True)

"""Who owns a file, and who else may change it."""

from __future__ import annotations

import os
import stat

TO_WRITE = stat.S_IWGRP | stat.S_IWOTH
AT_ALL = stat.S_IRWXG | stat.S_IRWXO


def others(found: os.stat_result, bits: int = AT_ALL) -> str:
    """The owner and mode of a file, in words, where the owner is neither root nor we, or the mode
    has one of these bits for group and others; "": neither is so."""
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & bits:
        return ""
    return f"uid {found.st_uid}'s with mode {stat.S_IMODE(found.st_mode):04o}"

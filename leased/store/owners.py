"""Who owns a file, and who else may have a hand in it."""

from __future__ import annotations

import os
import stat

TO_WRITE = stat.S_IWGRP | stat.S_IWOTH
AT_ALL = stat.S_IRWXG | stat.S_IRWXO


def others(found: os.stat_result, bits: int = AT_ALL) -> str:
    """Whose the file is and its mode, where that is neither root nor we, or where the mode has
    one of these bits of group and others; "" where it is as it should be."""
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & bits:
        return ""
    return f"uid {found.st_uid}'s with mode {stat.S_IMODE(found.st_mode):04o}"

"""Which folder keeps users from a file."""

from __future__ import annotations

import stat
from pathlib import Path


def closed_to_others(path: Path) -> Path | None:
    """The first folder on the way to a file that others may not enter."""
    return next(
        (p for p in reversed(path.absolute().parents) if not p.stat().st_mode & stat.S_IXOTH), None
    )

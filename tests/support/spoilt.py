"""What may stand in the place of a file that the daemon reads."""

from __future__ import annotations

import os
from pathlib import Path

KINDS = ("nothing", "a directory", "a FIFO", "a huge file", "garbage")


def spoil(path: Path, kind: str) -> None:
    """Put one of KINDS there."""
    path.unlink(missing_ok=True)
    if kind == "a directory":
        path.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a huge file":
        path.touch()
        os.truncate(path, 1 << 40)
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)))

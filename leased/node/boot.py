"""Whether the machine has been booted since a daemon ran here."""

from __future__ import annotations

import contextlib
from pathlib import Path

from leased.processes import procfs


def booted_since(path: Path) -> bool:
    """Whether the machine has been booted since the file was last written; writes the file.

    No: where the kernel does not say.
    """
    now = procfs.boot_id()
    before = procfs.whole(path, procfs.LINE_MOST)
    if now is None or (before is not None and before.strip() == now.encode()):
        return False
    with contextlib.suppress(OSError):  # a full disk: it is asked again at the next start
        path.write_text(now + "\n")
    return bool(before)  # an empty one could not be written for lack of room

"""Where tests and benchmarks keep what a daemon of theirs reads.

Root's daemon refuses files in directories that others may write, and /tmp is one. So
for root it is a directory that only root may write, for others one below /tmp.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from leased.config import trusted_files

# Short, since paths of sockets are; programs can be run from it.
OF_ROOT = Path("/var/lib")
IN_MEMORY = Path("/dev/shm")
LEAST_FREE = 2 << 30  # bytes
# What tests do with their files there.
REFUSED = os.ST_NOEXEC | os.ST_NODEV | os.ST_RDONLY


def work_dir() -> Path:
    """A new directory, which every user may enter. The caller removes it."""
    place = OF_ROOT if os.geteuid() == 0 else Path("/tmp")
    path = Path(tempfile.mkdtemp(prefix="gpul-", dir=place))
    path.chmod(0o755)
    return path


def place_of_tmp_path() -> Path | None:
    """Where pytest is to make the directories of tmp_path; None: where it does anyway. Stores that
    tests open there wait for the disk hundreds of times a second, which in memory takes no time."""
    try:
        found = os.statvfs(IN_MEMORY)
    except OSError:
        return None
    roomy = found.f_bavail * found.f_frsize >= LEAST_FREE
    usable = os.access(IN_MEMORY, os.W_OK) and not found.f_flag & REFUSED
    return IN_MEMORY if roomy and usable else None


def of_root(file: Path) -> Path:
    """The file, or for root a copy of it where the checkout is another user's, or below /tmp. One
    that has not been built is missed by who needs it."""
    if os.geteuid() != 0 or not file.exists() or trusted_files.fault(file) is None:
        return file
    folder = work_dir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copy(file, folder / file.name))

"""The data directory of MariaDB, with slurmdbd's tables: made once in a checkout, then copied for
each private Slurm."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.slurm.processes import StartError

ROOT = Path(__file__).resolve().parents[2]
PREPARED = ROOT / "build" / "databases"
LOG_SIZE = "--innodb-log-file-size=4M"  # its default is 96 MiB, which every copy would have
# Nothing need survive a crash of the machine.
UNSAFE = ("--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--sync-frm=0")


@contextlib.contextmanager
def prepared(version: str) -> Iterator[Path]:
    """Where the data directory for a Slurm of this version is, or is to be put by `keep`; nobody
    else makes one meanwhile."""
    PREPARED.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (PREPARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield PREPARED / version


def keep(data: Path, place: Path) -> None:
    """A directory that no mariadbd uses is what others begin with."""
    unfinished = place.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(data, unfinished)
    unfinished.rename(place)


def make(data: Path) -> None:
    """Make `data` a data directory whose root is the machine's root. StartError: it failed."""
    made = subprocess.run(
        [
            *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root"),
            # Its root is the machine's root, by the socket's credentials.
            *("--skip-test-db", "--auth-root-authentication-method=socket", LOG_SIZE, *UNSAFE),
            "--force",  # on a machine without /etc/hosts too: it looks up its name for nothing
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise StartError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")

"""The data directory of MariaDB: made once in a checkout, then copied for each private Slurm."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.slurm.processes import StartError

ROOT = Path(__file__).resolve().parents[2]
PREPARED = ROOT / "build" / "mariadb"
LOG_SIZE = "--innodb-log-file-size=4M"  # its default is 96 MiB, which every copy would have
# Nothing need survive a crash of the machine.
UNSAFE = ("--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--sync-frm=0")


def put(data: Path) -> None:
    """Make `data` a data directory whose root is the machine's root. StartError: it failed."""
    PREPARED.parent.mkdir(exist_ok=True)
    with PREPARED.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not PREPARED.exists():
            _prepare()
    shutil.copytree(PREPARED, data, dirs_exist_ok=True)


def _prepare() -> None:
    unfinished = PREPARED.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    made = subprocess.run(
        [
            *("mariadb-install-db", "--no-defaults", f"--datadir={unfinished}", "--user=root"),
            # Its root is the machine's root, by the socket's credentials.
            *("--skip-test-db", "--auth-root-authentication-method=socket", LOG_SIZE, *UNSAFE),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise StartError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")
    unfinished.rename(PREPARED)

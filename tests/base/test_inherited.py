"""What the service manager hands over, with the systemd-python of each distribution."""

from __future__ import annotations

import subprocess
import sys

import pytest

# systemd-python 234, which EL 9 has, knows no names.
CHILD = """
import os, subprocess, sys
from systemd import daemon
if sys.argv[1] == "234" and hasattr(daemon, "listen_fds_with_names"):
    del daemon.listen_fds_with_names
from leased.base import service_manager
print(sorted(service_manager.descriptors().items()))
print([name for name in os.environ if name.startswith("LISTEN_")])
print(service_manager.descriptors())
"""


def started(release: str, number: int, names: str | None) -> list[str]:
    """What a process says that is started as systemd does, with so many descriptors from 3 on."""
    given = [] if names is None else [f"LISTEN_FDNAMES={names}"]
    given += [f"LISTEN_FDS={number}"] if number else []
    words = ["env", *given, sys.executable, "-c", CHILD, release]
    dup = "".join(f" {fd}</dev/null" for fd in range(3, 3 + number))
    script = f'export LISTEN_PID=$$; exec "$@"{dup}'
    command = ["sh", "-c", script, "sh", *words]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return said.stdout.splitlines()


@pytest.mark.parametrize("release", ["234", "own"])
@pytest.mark.parametrize(
    ("number", "names", "found"),
    [
        (2, "admin:client", [(3, "admin"), (4, "client")]),
        (2, "client:client", [(3, "client"), (4, "client")]),
        (2, "admin", [(3, "admin"), (4, "unknown")]),
        (1, None, [(3, "unknown")]),
        (0, None, []),
    ],
)
def test_names(release: str, number: int, names: str | None, found: list[tuple[int, str]]) -> None:
    assert started(release, number, names) == [str(found), "[]", "{}"]

"""Become a program that systemd activates by sockets: `activate FD=NAME... -- COMMAND...`.

systemd gives listening sockets from descriptor 3 on and says so to this very pid,
which only the process itself knows before it starts.
"""

from __future__ import annotations

import fcntl
import os
import sys

FIRST_FD = 3
OUT_OF_THE_WAY = 64


def main() -> None:
    at = sys.argv.index("--")
    given = [word.partition("=") for word in sys.argv[1:at]]
    # First all away from the numbers that they are to get.
    moved = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) for fd, _, _ in given]
    for fd, _, _ in given:
        os.close(int(fd))
    for place, there in enumerate(moved):
        os.dup2(there, FIRST_FD + place)
    os.environ["LISTEN_FDS"] = str(len(given))
    os.environ["LISTEN_FDNAMES"] = ":".join(name for _, _, name in given)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.execv(sys.argv[at + 1], sys.argv[at + 1 :])


if __name__ == "__main__":
    main()

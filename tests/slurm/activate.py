"""Become a program that systemd activates by sockets: `activate FD=NAME... -- COMMAND...`.

systemd gives listening sockets from descriptor 3 on and says so to this very pid,
which only the process itself knows before it starts. A module that this Python is to run
(`python -m MODULE`) runs in this process; anything else is executed.
"""

from __future__ import annotations

import fcntl
import os
import runpy
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
    program, *arguments = sys.argv[at + 1 :]
    if program != sys.executable or arguments[:1] != ["-m"]:
        os.execv(program, [program, *arguments])
    sys.argv = arguments[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

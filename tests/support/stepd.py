"""Suspend a process as slurmstepd does, for tests without Slurm.

`python -m tests.support.stepd PID GRACE_S`, as root: SIGTSTP, of which the interposer knows by
the sender's name that it is Slurm's, and SIGSTOP so many seconds later. Prints when it sent each
of them, in seconds of the monotonic clock; ends when its input does.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time

PR_SET_NAME = 15
NAME = b"slurmstepd"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pid", type=int)
    parser.add_argument("grace", type=float, metavar="GRACE_S")
    chosen = parser.parse_args()
    if ctypes.CDLL(None).prctl(PR_SET_NAME, NAME, 0, 0, 0) != 0:
        raise SystemExit("cannot take slurmstepd's name")
    for number, pause in ((signal.SIGTSTP, chosen.grace), (signal.SIGSTOP, 0)):
        print(time.monotonic(), flush=True)
        os.kill(chosen.pid, number)
        time.sleep(pause)
    sys.stdin.read()


if __name__ == "__main__":
    main()

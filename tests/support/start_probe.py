"""Prints what a program finds at its start, for test_template.py: `start_probe [ends-with N]`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path


def found() -> dict[str, object]:
    descriptors = {
        int(path.name): str(path.readlink())
        for path in Path("/proc/self/fd").iterdir()
        if path.exists()
    }
    return {
        "name": __name__,
        "arguments": sys.argv[1:],
        "environment": {n: t for n, t in os.environ.items() if n != "PYTHONUNBUFFERED"},
        "directory": str(Path.cwd()),
        "descriptors": descriptors,
        "leads_session": os.getsid(0) == os.getpid() == os.getpgrp(),
        "parent": os.getppid(),
        "umask": os.umask(0),
        "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "limits": [resource.getrlimit(kind) for kind in range(10)],
        "modules": sorted(n for n in sys.modules if n.startswith("tests.support.start")),
    }


def main() -> int:
    print(json.dumps(found()))
    return int(sys.argv[-1])


if __name__ == "__main__":
    raise SystemExit(main())

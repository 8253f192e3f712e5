"""Two components of a chain for the benchmark `chains`, which runs it as a job:
`python -m tests.bench.chains.parts.pair BYTES PASSES HANDLES`.

The giver starts the taker, passes it data through the host and by handle, and prints what it
measured as JSON. By both ways the next pass begins when the taker has answered.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_lease.chain import HANDLE_BYTES, NOW, Chain
from tests.emugpu.program_api import ctypes, d, ok, setup

END = bytes(HANDLE_BYTES)
SMALL = 4096
HOST = b"h" * HANDLE_BYTES


def pinned(file: int, size: int) -> Any:
    """Host memory that both components have, so that its data is copied once each way."""
    memory = mmap.mmap(file, size)
    ok(d.cuMemHostRegister(ctypes.addressof(ctypes.c_char.from_buffer(memory)), size, 0))
    return memory


def take(file: int, size: int) -> None:
    """Answer each handle with the time at which this component had its buffer."""
    chain, host = Chain(), pinned(file, size)
    at = ok(d.cuMemAlloc(size))
    os.write(1, bytes(8))
    while (handle := os.read(0, HANDLE_BYTES)) != END:
        if handle == HOST:
            ok(d.cuMemcpyHtoD(at, host, size))
            now = time.monotonic_ns()
        else:
            buffer = chain.get(handle)
            now = time.monotonic_ns()
            buffer.drop(when=NOW)
        os.write(1, struct.pack("q", now))


class Giver:
    def __init__(self, size: int) -> None:
        self.size = size
        self.chain = Chain(4 * size)
        file = os.memfd_create("host", 0)
        os.ftruncate(file, size)
        self.host = pinned(file, size)
        self.at = ok(d.cuMemAlloc(size))
        command = [
            sys.executable,
            "-m",
            "tests.bench.chains.parts.pair",
            "take",
            str(file),
            str(size),
        ]
        self.taker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file], bufsize=0
        )
        assert self.taker.stdin is not None
        assert self.taker.stdout is not None
        self.to, self.back = self.taker.stdin.fileno(), self.taker.stdout.fileno()
        self.answer()

    def answer(self) -> int:
        (at,) = struct.unpack("q", os.read(self.back, 8))
        return int(at)

    def by_host(self) -> None:
        ok(d.cuMemcpyDtoH(self.host, self.at, self.size))
        os.write(self.to, HOST)
        self.answer()

    def by_handle(self, size: int) -> int:
        """The ns from before the put until the taker has the buffer."""
        buffer = self.chain.alloc(size)
        begin = time.monotonic_ns()
        os.write(self.to, self.chain.put(buffer, when=NOW))
        return self.answer() - begin

    def end(self) -> None:
        os.write(self.to, END)
        self.taker.wait()


def mean_s(passes: int, once: Callable[[], object]) -> float:
    once()
    begin = time.monotonic()
    for _ in range(passes):
        once()
    return (time.monotonic() - begin) / passes


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def give(size: int, passes: int, handles: int) -> dict[str, Any]:
    pair = Giver(size)
    host = mean_s(passes, pair.by_host)
    handle = mean_s(50 * passes, lambda: pair.by_handle(size))
    pair.by_handle(SMALL)  # the pool has a buffer of each size from here on
    before, files = pair.chain.used(), descriptors()
    times = {
        n: statistics.median(pair.by_handle(n) for _ in range(handles // 2)) / 1000
        for n in (SMALL, size)
    }
    after = pair.chain.used()
    pair.end()
    pair.chain.close()
    return {
        "host_s": host,
        "handle_s": handle,
        "handle_us": times,
        "leaked": after["active"]
        + (after["bytes"] != before["bytes"])
        + max(0, descriptors() - files),  # one that was closed meanwhile is no leak
    }


def main() -> None:
    setup()
    if sys.argv[1] == "take":
        take(int(sys.argv[2]), int(sys.argv[3]))
    else:
        found = give(*map(int, sys.argv[1:]))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

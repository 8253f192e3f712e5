"""A component of a chain: it takes an item, runs kernels for it, waits for them, and passes it on.

`python -m tests.bench.chains.parts.component MIB ROUNDS KERNELS IN OUT`: so many kernels for an
item, each of which passes over so much memory so often. IN and OUT are descriptors of pipes, or -1:
the first component makes items, the last one drops them. Few items wait between two components, so
none runs far ahead.
"""

from __future__ import annotations

import fcntl
import os
import sys

from tests.emugpu.program_api import MIB, d, launch, ok, say, setup, wait

ITEM = bytes(1024)
F_SETPIPE_SZ = 1031  # fcntl has it from Python 3.10 on
PIPE_BYTES = 4096  # the least that Linux has
GRID, BLOCK = 1056, 256  # all multiprocessors of an H200


def main() -> None:
    mib, rounds, kernels, take, put = map(int, sys.argv[1:])
    if put >= 0:
        fcntl.fcntl(put, F_SETPIPE_SZ, PIPE_BYTES)
    setup()
    memory, words = ok(d.cuMemAlloc(mib * MIB)), mib * MIB // 4
    say("ready")
    wait()
    while take < 0 or os.read(take, len(ITEM)):
        for _ in range(kernels):
            ok(launch("add", memory, words, 1, rounds, grid=GRID, block=BLOCK))
        ok(d.cuCtxSynchronize())
        if put >= 0:
            os.write(put, ITEM)


if __name__ == "__main__":
    main()

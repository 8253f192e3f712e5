"""A component of a chain: it takes an item, runs kernels for it, waits for them, and passes it on.

`python -m tests.bench.chains.parts.component MIB ROUNDS KERNELS[:GRID:ROUNDS] IN OUT`: so many
kernels for an item, each of which passes over so much memory so often, in as many blocks as there
is room for; or in GRID blocks and as often as behind it. With `us` behind it each block computes
for so many microseconds instead, and uses no memory. IN and OUT are descriptors of pipes, or
-1: the first component makes items, the last one drops them. Few items wait between two
components, so none runs far ahead. Under MPS it has the part of the multiprocessors that the daemon
says; PARTS in the environment says by which contexts: green (where it is not set), affinity, or
none. STARTS: a file to which it writes who has started it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_lease import chain as chains
from tests.emugpu import program_api
from tests.emugpu.program_api import MIB, d, launch, ok, say, setup

ITEM = bytes(1024)
F_SETPIPE_SZ = 1031  # fcntl has it from Python 3.10 on
PIPE_BYTES = 4096  # the least that Linux has
GRID, BLOCK = 1056, 256  # all multiprocessors of an H200


def parts() -> Callable[[], int]:
    """What chooses the part before each item, and returns the stream for its kernels."""
    wanted = os.environ.get("PARTS", "green")
    if "CUDA_MPS_PIPE_DIRECTORY" not in os.environ or wanted == "none":
        return lambda: 0
    how = chains.AFFINITY if wanted == "affinity" else chains.GREEN
    chain = chains.Chain()
    loaded: dict[int, dict[str, Any]] = {chain.part(how).context: dict(program_api.functions)}

    def choose() -> int:
        part = chain.part(how)
        if how == chains.AFFINITY:
            if part.context not in loaded:
                loaded[part.context] = program_api.load()
            program_api.functions.update(loaded[part.context])
        return part.stream

    return choose


def submit(kernels: str, rounds: int, memory: Any, words: int) -> Callable[[int], None]:
    """What submits the kernels for an item to a stream."""
    number, grid, often = [*kernels.split(":"), str(GRID), str(rounds)][:3]
    computes = often.endswith("us")
    values = ("spin", int(often[:-2]) * 1000) if computes else ("add", memory, words, 1, int(often))

    def of_item(stream: int) -> None:
        for _ in range(int(number)):
            ok(launch(*values, stream=stream, grid=int(grid), block=BLOCK))

    return of_item


def main() -> None:
    mib, take, put = (int(sys.argv[i]) for i in (1, 4, 5))
    if put >= 0:
        fcntl.fcntl(put, F_SETPIPE_SZ, PIPE_BYTES)
    setup()
    memory, words = ok(d.cuMemAlloc(mib * MIB)), mib * MIB // 4
    work, choose = submit(sys.argv[3], int(sys.argv[2]), memory, words), parts()
    if starts := os.environ.get("STARTS"):
        with Path(starts).open("a") as file:
            file.write(f"{os.getppid()}\n")
    say("ready")
    sys.stdin.readline()  # one that is started again does not wait
    while take < 0 or os.read(take, len(ITEM)):
        stream = choose()
        work(stream)
        ok(d.cuStreamSynchronize(stream))
        if put >= 0:
            os.write(put, ITEM)


if __name__ == "__main__":
    main()

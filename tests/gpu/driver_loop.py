"""A program of the driver alone, with our own kernels: `python -m tests.gpu.driver_loop STEPS MIB`.

Each step adds to every word of its memory; it prints a line of JSON with the digest of all of it.
"""

from __future__ import annotations

import hashlib
import json
import sys

from tests.emugpu.program_api import MIB, d, launch, ok, setup

PIECES = 8


def main() -> int:
    steps, mib = (int(text) for text in sys.argv[1:])
    setup()
    size = mib * MIB // PIECES
    pieces = [ok(d.cuMemAlloc(size)) for _ in range(PIECES)]
    for n, piece in enumerate(pieces):
        ok(launch("fill", piece, size // 4, n))
    for step in range(steps):
        for piece in pieces:
            ok(launch("add", piece, size // 4, step + 1, 1))
        if step % 8 == 7:
            ok(d.cuCtxSynchronize())
    digest, host = hashlib.sha256(), bytearray(size)
    for piece in pieces:
        ok(d.cuMemcpyDtoH(host, piece, size))
        digest.update(host)
    print(json.dumps({"digest": digest.hexdigest()}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

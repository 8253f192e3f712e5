"""A program that works without a pause, for check_move and check_saved.

`python -m tests.gpu.move_loop MIB [FOLDER]`.

It has memory of cuMemAlloc, a stream, an event and a graph of two kernels on the first GPU that it
sees. For each order `TURNS` (orders.py) it works so many turns, and prints a line of JSON: the
digest of all its memory (a sum that the GPU forms, with weights by position), the longest pause
between two turns of it, and its GPU.
"""

from __future__ import annotations

import json
import sys
import time

from tests.emugpu.program_api import MIB, d, launch, ok, setup, words
from tests.gpu.orders import orders


def main() -> int:
    size = int(sys.argv[1]) * MIB
    setup()
    stream, event = ok(d.cuStreamCreate(1)), ok(d.cuEventCreate(0))
    memory, total = ok(d.cuMemAlloc(size)), ok(d.cuMemAlloc(8))
    ok(launch("fill", memory, size // 4, 1, grid=1024, block=256))
    ok(d.cuCtxSynchronize())
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for value in (3, 5):
        ok(launch("add", memory, size // 4, value, 1, stream=stream, grid=1024, block=256))
    graph = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0))
    print("ready", flush=True)
    for line in orders(*sys.argv[2:]):
        last, pause = time.monotonic(), 0.0
        for _ in range(int(line)):
            ok(d.cuGraphLaunch(graph, stream))
            ok(d.cuEventRecord(event, stream))
            ok(d.cuEventSynchronize(event))
            pause, last = max(pause, time.monotonic() - last), time.monotonic()
        ok(d.cuMemsetD32(total, 0, 2))
        ok(launch("checksum", memory, size // 4, total, grid=1024, block=256))
        ok(d.cuCtxSynchronize())
        digest = "".join(f"{half:08x}" for half in reversed(words(total, 2)))
        gpu = bytes(ok(d.cuDeviceGetUuid(0)).bytes).hex()
        print(json.dumps({"digest": digest, "pause_s": round(pause, 3), "gpu": gpu}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

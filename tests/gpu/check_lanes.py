"""Two GPUs of one process move memory at the same time, on real GPUs.

`python -m tests.gpu.check_lanes [--evict MIB] [--preload MIB] [--rounds N]` on a machine with two
GPUs. A process has swapped memory on both and no lease. First GPU 0 evicts alone, then GPU 1
preloads alone, then GPU 1 preloads while GPU 0 evicts; medians of the rounds. Prints a table and
writes lanes.json in $OUT or build/bench. Exit status 1 if data was wrong, or if the preload, which
is the smaller one, ended after the eviction beside it. A test's daemon gives the orders.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pynvml

from leased.wire import daemon_messages
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import ROOT
from tests.slurm.leased import PRELOAD
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell
from tests.support.together import zip_strict

MIB = 1 << 20
ROOM = 2048 * MIB  # beyond what a process has, for its limit

# Each line of input lets it check what it has and change all of it.
PROGRAM = """
import os, sys
from tests.emugpu.bindings import driver as d
def ok(r):
    assert r[0] == d.CUresult.CUDA_SUCCESS, r[0]
    return r[1] if len(r) == 2 else r[1:]
sizes = [int(word) << 20 for word in sys.argv[1:]]
PART = 2 << 20
ok(d.cuInit(0))
contexts = [ok(d.cuDevicePrimaryCtxRetain(n)) for n in range(2)]
held = []
for context, size in zip(contexts, sizes):
    ok(d.cuCtxSetCurrent(context)); held.append(int(ok(d.cuMemAlloc(size))))
def each(turn):
    for context, p, size in zip(contexts, held, sizes):
        ok(d.cuCtxSetCurrent(context))
        for at in range(0, size, PART):
            yield p + at, turn + at // PART
        ok(d.cuCtxSynchronize())
turn = 0
while True:
    turn += 1
    for at, value in each(turn): ok(d.cuMemsetD32(at, value, PART // 4))
    os.write(1, b"changed\\n")
    if sys.stdin.readline() != "on\\n": break
    for at, value in each(turn):
        for word in (at, at + PART - 4):
            host = bytearray(4); ok(d.cuMemcpyDtoH(host, word, 4))
            assert int.from_bytes(host, "little") == value, (hex(word), value)
"""


def uuids() -> list[str]:
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(2)]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def process(chosen: argparse.Namespace) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """The program, with its first lease over."""
    sizes = [chosen.evict, chosen.preload]
    totals = dict(zip_strict(uuids(), [size * MIB + ROOM for size in sizes]))
    if chosen.total:
        totals = dict.fromkeys(totals, chosen.total * MIB)
    with tempfile.TemporaryDirectory(prefix="gpul-") as directory:
        socket = Path(directory) / "tenant.sock"
        ours = {"LD_PRELOAD": str(PRELOAD), "GPU_LEASE_SOCKET": str(socket)}
        with FakeDaemon(socket, totals) as daemon:
            job = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, sizes)],
                cwd=ROOT,
                env=os.environ | ours,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                client = daemon.client(job.pid)
                assert line(job) == "changed"
                daemon.auto = False
                client.revoke()
                yield job, client
            finally:
                job.kill()
                job.communicate()


def seconds(client: Client, *orders: tuple[bytes, str, int]) -> list[float]:
    """Send orders together: how long until each one's device has so many bytes."""
    began, ended = time.monotonic(), [0.0] * len(orders)

    def all_ended() -> bool:
        for n, (_, uuid, resident) in enumerate(orders):
            if not ended[n] and client.resident(uuid) == resident:
                ended[n] = time.monotonic()
        return all(ended)

    for message, _, _ in orders:
        client.send(message)
    client.until("end of what was ordered", all_ended)
    return [at - began for at in ended]


def take_turn(job: subprocess.Popen[str], client: Client) -> None:
    """Let the program check and change its memory once."""
    tell(job, "on")
    client.grant()
    assert line(job) == "changed"
    client.revoke()


def check_both(chosen: argparse.Namespace) -> Result:
    one, other = uuids()
    evict = daemon_messages.evict({one: chosen.evict * MIB})
    leave = daemon_messages.evict({other: chosen.preload * MIB})
    preload = daemon_messages.preload({other: chosen.preload * MIB})
    comes, goes = (preload, other, chosen.preload * MIB), (evict, one, 0)
    alone, together = [], []
    with process(chosen) as (job, client):
        for _ in range(chosen.rounds):
            (evicted,) = seconds(client, goes)
            seconds(client, (leave, other, 0))
            (preloaded,) = seconds(client, comes)
            alone.append((evicted, preloaded))
            take_turn(job, client)
            seconds(client, (leave, other, 0))
            together.append(seconds(client, goes, comes))
            take_turn(job, client)
    evict_s, preload_s = (statistics.median(each) for each in zip_strict(*alone))
    both = [statistics.median(each) for each in zip_strict(*together)]
    return {
        "good": all(preloaded < evicted for evicted, preloaded in together),
        "summary": f"alone: evicted in {evict_s:.3f} s, preloaded in {preload_s:.3f} s; "
        f"at the same time: {both[0]:.3f} s and {both[1]:.3f} s",
        "alone_s": [evict_s, preload_s],
        "together_s": both,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evict", type=int, default=16384, help="MiB that GPU 0 evicts")
    parser.add_argument("--preload", type=int, default=4096, help="MiB that GPU 1 preloads")
    parser.add_argument("--total", type=int, default=0, help="MiB that a job may have; as needed")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    return run_checks("lanes", {"both": partial(check_both, chosen)}, ["both"])


if __name__ == "__main__":
    raise SystemExit(main())

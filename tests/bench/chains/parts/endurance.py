"""Components that are killed at random while they pass each other buffers, for the benchmark
`chains`, which runs it as a job: `python -m tests.bench.chains.parts.endurance KILLS`.

Components take handles from a pipe that all of them have, look at the buffers, and put them again
with other words; each holds some meanwhile, and looks at one of those, too. Again and again a
random one is killed at a random time and another one begins. It is forked from a process that has
its imports done, so that a thousand of them take a minute.

What it prints, as JSON: `times` that one was killed; `looked`: how often a buffer was looked at;
`wrong`: words that were not what was written, and handles out of the pipe that no buffer was got
for; `leaked`: buffers that stay when the last components have ended.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import struct
import sys
import time
from mmap import mmap

from gpu_lease.chain import HANDLE_BYTES, NOW, Buffer, Chain, ChainError, FullError
from tests.emugpu.program_api import d, launch, ok, setup, word, words

COMPONENTS, HOLDS = 4, 3
SIZES = (4096, 3 << 20)
POOL, KEEP_S = 256 << 20, 20
MOST_S = 0.03  # that a component has until it is killed
MESSAGE = struct.Struct(f"{HANDLE_BYTES}sI")  # a handle, and what its buffer was filled with
LOOKED, WRONG, READY = range(3)  # counts of a component


class Component:
    """counts: in memory that outlives it."""

    def __init__(self, counts: memoryview, pipe: tuple[int, int], seed: int) -> None:
        self.counts, (self.take_end, self.put_end) = counts, pipe
        self.random = random.Random(seed)
        setup()
        self.chain = Chain(POOL, KEEP_S)
        self.held: list[tuple[Buffer, int]] = []

    def run(self) -> None:
        """Until it is killed."""
        self.counts[READY] = 1
        while True:
            self.random.choice((self.make, self.take, self.give, self.look))()

    def make(self) -> None:
        if len(self.held) < HOLDS:
            try:
                buffer = self.chain.alloc(self.random.choice(SIZES), timeout=0)
            except FullError:
                return
            self.held.append((buffer, self.fill(buffer)))

    def fill(self, buffer: Buffer) -> int:
        base = self.random.randrange(1 << 30)
        ok(launch("fill", buffer.pointer, buffer.size // 4, base))
        ok(d.cuCtxSynchronize())
        return base

    def take(self) -> None:
        if len(self.held) >= HOLDS:
            return
        try:
            handle, base = MESSAGE.unpack(os.read(self.take_end, MESSAGE.size))
        except BlockingIOError:
            return
        try:
            self.held.append((self.chain.get(handle), base))
        except ChainError as fault:
            print(fault, file=sys.stderr)
            self.counts[WRONG] += 1
            return
        self.look()

    def give(self) -> None:
        if not self.held:
            return
        buffer, base = self.held.pop(self.random.randrange(len(self.held)))
        if self.random.random() < 0.2:
            buffer.drop(when=NOW)
            return
        if self.random.random() < 0.5:
            base = self.fill(buffer)
        handle = self.chain.put(buffer, when=NOW)
        os.write(self.put_end, MESSAGE.pack(handle, base))

    def look(self) -> None:
        if not self.held:
            return
        buffer, base = self.held[-1] if self.random.random() < 0.5 else self.held[0]
        at = self.random.randrange(buffer.size // 4 - 16)
        found = words(buffer.pointer + 4 * at, 16)
        self.counts[LOOKED] += 1
        self.counts[WRONG] += sum(one != word(base, at + i) for i, one in enumerate(found))


def begin(counts: memoryview, pipe: tuple[int, int], seed: int) -> int:
    """The process number of a component. It runs as soon as counts[READY] is set."""
    counts[READY] = 0
    pid = os.fork()
    if pid:
        return pid
    try:
        Component(counts, pipe, seed).run()
    except BaseException as fault:
        print(repr(fault), file=sys.stderr)
    os._exit(1)


def await_ready(counts: memoryview, pid: int) -> None:
    while not counts[READY]:
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise RuntimeError("a component has ended by itself")
        time.sleep(0.0005)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError("a component had ended by itself")


def left(counts: memoryview, pipe: tuple[int, int]) -> int:
    """Buffers that are still active once the last component has taken what is in the pipe, and
    handles that were read from it by one that was killed then are stale."""
    last = Component(counts, pipe, 0)
    while select.select([pipe[0]], [], [], 0)[0]:
        last.take()
        for buffer, _ in last.held:
            buffer.drop(when=NOW)
        last.held.clear()
    until = time.monotonic() + 3 * KEEP_S
    while (used := last.chain.used())["active"] and time.monotonic() < until:
        time.sleep(0.1)
    return used["active"] + used["members"] - 1


def measure(kills: int) -> dict[str, int]:
    chosen, pipe = random.Random(1), os.pipe2(os.O_NONBLOCK)
    slot = 8 * len((LOOKED, WRONG, READY))
    shared = memoryview(mmap(-1, COMPONENTS * slot))
    counts = [shared[n * slot : (n + 1) * slot].cast("Q") for n in range(COMPONENTS)]
    seeds = iter(range(10**9))
    pids = [begin(counts[n], pipe, next(seeds)) for n in range(COMPONENTS)]
    for n in range(COMPONENTS):
        await_ready(counts[n], pids[n])
    for _ in range(kills):
        time.sleep(chosen.uniform(0, MOST_S))
        n = chosen.randrange(COMPONENTS)
        end(pids[n])
        pids[n] = begin(counts[n], pipe, next(seeds))
        if chosen.random() < 0.8:  # otherwise it may be killed while it begins
            await_ready(counts[n], pids[n])
    for pid in pids:
        end(pid)
    leaked = left(counts[0], pipe)
    return {
        "times": kills,
        "looked": sum(one[LOOKED] for one in counts),
        "wrong": sum(one[WRONG] for one in counts),
        "leaked": leaked,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))), flush=True)

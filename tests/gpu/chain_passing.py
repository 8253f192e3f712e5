"""How fast a chain of components passes items of data on, in several ways.

`python -m tests.gpu.chain_passing COMPONENTS SECONDS TOUCH WAY:MIB,WAY:MIB,...`. The first
component fills an item, each further one changes it, and the last one looks at both ends of the
first item. TOUCH: `whole`, each kernel passes over all of an item, or `page`, over 4 KiB of it, so
that little but the passing is measured. WAY: `host`, copies through pinned host memory that all
have; `ipc`, CUDA IPC by hand: all open the first one's buffers once, and pass numbers; `ours`,
handles of gpu_lease.chain, for which it has to be in a job; `torch`, queues of
torch.multiprocessing, beside which there is no other way. One follows the other, for SECONDS each,
in the same processes: the same way differs by a fifth from some processes to others. As many items
are under way as there are components. Prints a line of JSON: `items_s`, of each in their order,
and, but for `torch`, which does not look, how many looks were `wrong`. With CHAIN_TIMES=1 in the
environment each component, but for `torch`, prints before what its parts of an item take, in us
(median): `work` is the kernel and the wait for it, `send` and `receive` are the pipes, and the
others the calls of each way.
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
from typing import Any, NamedTuple, Protocol

from gpu_lease.chain import HANDLE_BYTES, NOW, Buffer, Chain
from tests.emugpu.program_api import MIB, ctypes, d, launch, ok, setup, word, words

ITEM = struct.Struct(f"<I{HANDLE_BYTES}s")  # where it stands among those under way, and a message
LEARN, END = 0xFFFFFFFE, 0xFFFFFFFF  # instead: how to reach buffers; no more of this size
BASE = 7  # of what items are filled with


class Touch(NamedTuple):
    """words: that kernels change of an item of so many bytes. grid, block: of these kernels."""

    words: Callable[[int], int]
    grid: int
    block: int


TOUCHES = {
    "page": Touch(lambda _: 1024, 4, 64),
    "whole": Touch(lambda size: size // 4, 2048, 256),
}


class Way(Protocol):
    """One component's side. A message stands for an item that is passed on."""

    def begin(self, size: int, first: bool) -> list[bytes]:
        """Items of this size follow, if it is another one. Messages that all others are to have
        before."""

    def learn(self, message: bytes) -> None:
        """One of these."""

    def make(self, number: int) -> int:
        """A new item: its address. number: of its place among those that are under way."""

    def take(self, message: bytes) -> int:
        """The address of an item that was passed."""

    def give(self) -> bytes:
        """Pass the item on that was made or taken last."""

    def drop(self) -> None:
        """It has come to the end."""


class Host:
    def __init__(self, file: int, slots: int) -> None:
        size = os.fstat(file).st_size
        self.memory = mmap.mmap(file, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        ok(d.cuMemHostRegister(self.base, size, 0))
        self.stride, self.at, self.size, self.number = size // slots, 0, 0, 0

    def begin(self, size: int, first: bool) -> list[bytes]:
        del first
        if self.size != size:
            if self.at:
                ok(d.cuMemFree(self.at))
            self.at, self.size = ok(d.cuMemAlloc(size)), size
        return []

    def learn(self, message: bytes) -> None:
        raise AssertionError(message)

    def make(self, number: int) -> int:
        self.number = number
        return int(self.at)

    def take(self, message: bytes) -> int:
        self.number = int.from_bytes(message, "little")
        ok(d.cuMemcpyHtoD(self.at, self.base + self.number * self.stride, self.size))
        return int(self.at)

    def give(self) -> bytes:
        ok(d.cuMemcpyDtoH(self.base + self.number * self.stride, self.at, self.size))
        return self.number.to_bytes(HANDLE_BYTES, "little")

    def drop(self) -> None:
        pass


class Ipc:
    def __init__(self, _: int, slots: int) -> None:
        self.slots, self.number, self.size = slots, 0, 0
        self.at: list[int] = []

    def begin(self, size: int, first: bool) -> list[bytes]:
        if self.size == size:
            return []
        self.size = size
        for one in self.at:
            ok(d.cuMemFree(one) if first else d.cuIpcCloseMemHandle(one))
        self.at = [int(ok(d.cuMemAlloc(size))) for _ in range(self.slots if first else 0)]
        handles = [ok(d.cuIpcGetMemHandle(one)) for one in self.at]
        return [ctypes.string_at(handle.getPtr(), HANDLE_BYTES) for handle in handles]

    def learn(self, message: bytes) -> None:
        handle = d.CUipcMemHandle()
        ctypes.memmove(handle.getPtr(), message, HANDLE_BYTES)
        self.at.append(int(ok(d.cuIpcOpenMemHandle(handle, 1))))

    def make(self, number: int) -> int:
        self.number = number
        return self.at[number]

    def take(self, message: bytes) -> int:
        self.number = int.from_bytes(message, "little")
        return self.at[self.number]

    def give(self) -> bytes:
        return self.number.to_bytes(HANDLE_BYTES, "little")

    def drop(self) -> None:
        pass


class Ours:
    def __init__(self, file: int, _: int) -> None:
        self.chain = Chain(2 * os.fstat(file).st_size)
        self.size = 0
        self.buffer: Buffer

    def begin(self, size: int, first: bool) -> list[bytes]:
        del first
        self.size = size
        return []

    def learn(self, message: bytes) -> None:
        raise AssertionError(message)

    def make(self, number: int) -> int:
        del number
        self.buffer = self.chain.alloc(self.size)
        return self.buffer.pointer

    def take(self, message: bytes) -> int:
        self.buffer = self.chain.get(message)
        return self.buffer.pointer

    def give(self) -> bytes:
        return self.chain.put(self.buffer, when=NOW)

    def drop(self) -> None:
        self.buffer.drop(when=NOW)


WAYS: dict[str, Callable[[int, int], Way]] = {"host": Host, "ipc": Ipc, "ours": Ours}


def send(file: int, number: int, message: bytes = b"") -> None:
    os.write(file, ITEM.pack(number, message))


def receive(file: int) -> tuple[int, bytes]:
    found = b""
    while len(found) < ITEM.size:
        more = os.read(file, ITEM.size - len(found))
        if not more:
            raise RuntimeError("another component has ended")
        found += more
    number, message = ITEM.unpack(found)
    return number, message


def work(touch: str, name: str, at: int, size: int, *values: int) -> None:
    of = TOUCHES[touch]
    ok(launch(name, at, of.words(size), *values, grid=of.grid, block=of.block))
    ok(d.cuStreamSynchronize(0))


def look(touch: str, at: int, size: int) -> list[int]:
    """The first and the last word that kernels change."""
    return words(at, 1) + words(at + 4 * (TOUCHES[touch].words(size) - 1), 1)


class Times:
    """What a component's parts of an item take; nothing is measured unless CHAIN_TIMES says so."""

    def __init__(self, ways: dict[str, Way], place: int) -> None:
        self.place, self.ns = place, dict[str, list[int]]()
        if os.environ.get("CHAIN_TIMES") != "1":
            return
        for name in ("send", "receive", "work"):
            globals()[name] = self.timed(name, globals()[name])
        for way, one in ways.items():
            for name in ("make", "take", "give", "drop"):
                setattr(one, name, self.timed(f"{name} {way}", getattr(one, name)))

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*values: Any) -> Any:
            begin = time.perf_counter_ns()
            found = call(*values)
            kept.append(time.perf_counter_ns() - begin)
            return found

        kept = self.ns[name] = []
        return measured

    def show(self) -> None:
        us = {name: statistics.median(ns) / 1000 for name, ns in self.ns.items() if ns}
        if us:
            print(f"component {self.place}: {us}", flush=True)


class First:
    """It makes items and measures. to: the next component; back: where the last one says that an
    item has come."""

    def __init__(self, n: int, touch: str, to: int, back: int) -> None:
        self.n, self.touch, self.to, self.back = n, touch, to, back

    def measure(self, way: Way, size: int, seconds: float) -> float:
        for message in way.begin(size, first=True):
            send(self.to, LEARN, message)
        self.run(way, size, 0.2 * seconds)  # all have their buffers then
        rate = self.run(way, size, seconds)
        send(self.to, END)
        receive(self.back)
        return rate

    def run(self, way: Way, size: int, seconds: float) -> float:
        def begin(number: int) -> None:
            work(self.touch, "fill", way.make(number), size, BASE)
            send(self.to, number, way.give())

        return items_s(self.n, seconds, begin, lambda: receive(self.back)[0])


def items_s(
    n: int, seconds: float, begin: Callable[[int], None], ended: Callable[[], int]
) -> float:
    """Items a second, of which as many are under way as there are components. begin: an item, at
    its place. ended: waits for one, and returns its place."""
    free, came, begun = list(range(n)), 0, time.monotonic()
    while (goes_on := time.monotonic() < begun + seconds) or len(free) < n:
        if free and goes_on:
            begin(free.pop())
        else:
            free.append(ended())
            came += 1
    return came / (time.monotonic() - begun)


def pass_on(way: Way, size: int, touch: str, ends: tuple[int, int], seen: list[int] | None) -> bool:
    """What a further component does with one way; whether the first item was wrong. seen: what the
    last component is to see of it."""
    take, put = ends
    way.begin(size, first=False)
    looked = wrong = False
    while (found := receive(take))[0] != END:
        number, message = found
        if number == LEARN:
            way.learn(message)
            if not seen:
                send(put, number, message)
            continue
        at = way.take(message)
        work(touch, "add", at, size, 1, 1)
        if seen:
            wrong |= not looked and look(touch, at, size) != seen
            looked = True
            way.drop()
        send(put, number, b"" if seen else way.give())
    send(put, END)
    return wrong


def parts_of(said: str) -> list[tuple[str, int]]:
    """WAY:MIB,...: each way, and bytes."""
    return [(way, int(mib) * MIB) for way, mib in (one.split(":") for one in said.split(","))]


def ways_of(parts: list[tuple[str, int]], file: int, n: int) -> dict[str, Way]:
    return {way: WAYS[way](file, n) for way in dict.fromkeys(way for way, _ in parts)}


def component(said: list[str]) -> int:
    """A further one. said: COMPONENTS TOUCH WAY:MIB,... FILE PLACE IN OUT."""
    touch, parts = said[1], parts_of(said[2])
    n, file, place, take, put = map(int, (said[0], *said[3:]))
    setup()
    ways = ways_of(parts, file, n)
    if place > 1:
        receive(take)  # all before it are ready
    send(put, 0)
    times = Times(ways, place)
    wrong = 0
    for way, size in parts:
        ends = (0, TOUCHES[touch].words(size) - 1)
        seen = [word(BASE + place, i) for i in ends] if place == n - 1 else None
        wrong += pass_on(ways[way], size, touch, (take, put), seen)
    times.show()
    return wrong


def measure(n: int, seconds: float, touch: str, said: str) -> dict[str, Any]:
    """As the first component, with the others as children."""
    parts = parts_of(said)
    setup()
    file = os.memfd_create("items", 0)
    os.ftruncate(file, n * max(size for _, size in parts))
    pipes = [os.pipe() for _ in range(n)]  # into the next one of each
    children = []
    for place in range(1, n):
        ends = [pipes[place - 1][0], pipes[place][1]]
        told = [str(n), touch, said, str(file), str(place)]
        command = [sys.executable, "-m", "tests.gpu.chain_passing", "component", *told]
        command += [str(end) for end in ends]
        children.append(subprocess.Popen(command, pass_fds=[file, *ends]))
    for place in range(1, n):
        os.close(pipes[place][1])
        if place < n - 1:
            os.close(pipes[place - 1][0])
    ways = ways_of(parts, file, n)
    first = First(n, touch, pipes[0][1], pipes[-1][0])
    receive(first.back)  # all are ready
    times = Times(ways, 0)
    rates = [first.measure(ways[way], size, seconds) for way, size in parts]
    times.show()
    wrong = sum(child.wait() for child in children)
    return {"items_s": rates, "wrong": wrong}


# -- torch.multiprocessing ------------------------------------------------------------


def torch_component(touch: str, take: Any, put: Any, last: bool) -> None:
    """A tensor that was received cannot be sent on, so it is cloned, as PyTorch says."""
    import torch

    kept: dict[int, Any] = {}
    while (found := take.get()) is not None:
        number, tensor = found
        tensor[: TOUCHES[touch].words(4 * len(tensor))] += 1
        if last:
            torch.cuda.synchronize()
            put.put(number)
        else:
            kept[number] = tensor.clone()
            torch.cuda.synchronize()
            put.put((number, kept[number]))
        del tensor, found
    kept.clear()
    if not last:
        put.put(None)


def measure_torch(n: int, seconds: float, touch: str, sizes: list[int]) -> dict[str, Any]:
    import torch
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queues = [context.Queue() for _ in range(n)]
    children = [
        context.Process(target=torch_component, args=(touch, queues[i - 1], queues[i], i == n - 1))
        for i in range(1, n)
    ]
    for child in children:
        child.start()
    rates = []
    for size in sizes:
        tensors = [torch.empty(size // 4, dtype=torch.int32, device="cuda") for _ in range(n)]

        def begin(number: int, tensors: list[Any] = tensors) -> None:
            tensors[number][: TOUCHES[touch].words(4 * len(tensors[number]))] = BASE
            torch.cuda.synchronize()
            queues[0].put((number, tensors[number]))

        items_s(n, 0.2 * seconds, begin, lambda: queues[-1].get(timeout=60))
        rates.append(items_s(n, seconds, begin, lambda: queues[-1].get(timeout=60)))
    queues[0].put(None)
    for child in children:
        child.join()
    return {"items_s": rates}


def main() -> int:
    if sys.argv[1] == "component":
        return component(sys.argv[2:])
    n, seconds, touch, said = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    if said.startswith("torch:"):
        found = measure_torch(n, seconds, touch, [size for _, size in parts_of(said)])
    else:
        found = measure(n, seconds, touch, said)
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

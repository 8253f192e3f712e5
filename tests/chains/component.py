"""A component of a chain for tests: it does what each line of its standard input says, and answers
each with a line. `python -m tests.chains.component [POOL_BYTES [KEEP_SECONDS]]`

Numbers of buffers count from 0, in the order in which it has allocated or got them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

from gpu_lease import chain as chains
from gpu_lease.chain import Buffer, Chain, ChainError
from tests.emugpu.program_api import d, launch, ok, say, setup, word, words

buffers: list[Buffer] = []


def seconds(text: str) -> float | None:
    return None if text == "-" else float(text)


def alloc(chain: Chain, size: str, timeout: str = "0") -> str:
    buffers.append(chain.alloc(int(size), timeout=seconds(timeout)))
    return str(buffers[-1].pointer)


def fill(_: Chain, number: str, base: str) -> str:
    buffer = buffers[int(number)]
    ok(launch("fill", buffer.pointer, buffer.size // 4, int(base)))
    ok(d.cuCtxSynchronize())
    return "filled"


def wrong(_: Chain, number: str, base: str) -> str:
    """How many of the words that it looks at are not those of fill()."""
    buffer = buffers[int(number)]
    n = buffer.size // 4
    places = sorted({*range(0, n, max(1, n // 50)), n - 1})
    return str(sum(words(buffer.pointer + 4 * i, 1) != [word(int(base), i)] for i in places))


def put(chain: Chain, number: str, takers: str = "1") -> str:
    return chain.put(buffers[int(number)], takers=int(takers)).hex()


def spin_put(chain: Chain, number: str, ms: str) -> str:
    """Put it with work under way that takes so long."""
    ok(launch("spin", int(ms) * 1_000_000, grid=1, block=1))
    return chain.put(buffers[int(number)], when=chains.LATER).hex()


def get(chain: Chain, handle: str, timeout: str = "0") -> str:
    buffers.append(chain.get(bytes.fromhex(handle), timeout=seconds(timeout)))
    return str(buffers[-1].pointer)


def drop(chain: Chain, number: str) -> str:
    chain.drop(buffers[int(number)])
    return "dropped"


def when(chain: Chain, number: str, kind: str) -> str:
    return chain.put(buffers[int(number)], when=int(kind)).hex()


class CBuffer(ctypes.Structure):
    """struct gpu_lease_buffer."""

    _fields_ = (("pointer", ctypes.c_uint64), ("size", ctypes.c_uint64), ("index", ctypes.c_uint64))


def drop_twice(chain: Chain) -> str:
    """As a program in C may, which has no object that knows it."""
    library = ctypes.CDLL(os.environ["GPU_LEASE_CHAIN_LIBRARY"])
    library.gpu_lease_chain_error.restype = ctypes.c_char_p
    at, held = ctypes.c_void_p(chain.number), CBuffer()
    assert not library.gpu_lease_chain_alloc(at, ctypes.c_uint64(4096), 0, ctypes.byref(held))
    assert not library.gpu_lease_chain_drop(at, ctypes.byref(held), None, chains.NOW)
    assert library.gpu_lease_chain_drop(at, ctypes.byref(held), None, chains.NOW)
    return str(library.gpu_lease_chain_error().decode())


def used(chain: Chain) -> str:
    found = chain.used()
    return " ".join(f"{name}={found[name]}" for name in ("bytes", "active", "inactive", "members"))


def after_fork(chain: Chain) -> str:
    """What a forked child is told."""
    read, write = os.pipe()
    if not os.fork():
        try:
            chain.alloc(4096)
        except ChainError as fault:
            os.write(write, type(fault).__name__.encode())
        os._exit(0)
    os.wait()
    return os.read(read, 100).decode()


def array(_: Chain, number: str) -> str:
    """The shape, type and address of the array that a library makes of a DLPack capsule."""
    made = buffers[int(number)].array((2, 3), "<f4")
    held = made.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    at = pointer(ctypes.py_object(held), ctypes.c_char_p(b"dltensor"))
    data = ctypes.cast(at, ctypes.POINTER(ctypes.c_uint64))[0]
    interface = made.__cuda_array_interface__
    assert interface["data"] == (data, False)
    return f"{interface['shape']} {interface['typestr']} {made.__dlpack_device__()}"


def churn(chain: Chain, times: str) -> str:
    """Pass so many buffers to itself; 0: until it is killed."""
    n = 0
    while not int(times) or n < int(times):
        buffer = chain.alloc(4096 + n % 3 * (4 << 20))
        chain.get(chain.put(buffer, when=chains.NOW)).drop(when=chains.NOW)
        n += 1
        if n == 100 and not int(times):
            say("churns")
    return "churned"


def part(chain: Chain, how: str) -> str:
    found = chain.part(int(how))
    return f"{found.percent} {found.multiprocessors}"


def evaluated(words: str) -> Any:
    return eval(words, {"NOW": chains.NOW, "Buffer": Buffer})


def put_by(chain: Chain, number: str, words: str) -> str:
    return chain.put(buffers[int(number)], **evaluated(f"dict({words})")).hex()


def get_by(chain: Chain, handle: str, words: str = "") -> str:
    buffers.append(chain.get(*evaluated(f"({handle},)"), **evaluated(f"dict({words})")))
    return str(buffers[-1].pointer)


def drop_by(chain: Chain, words: str) -> str:
    chain.drop(evaluated(words))
    return "dropped"


COMMANDS: dict[str, Callable[..., str]] = {
    "alloc": alloc, "fill": fill, "wrong": wrong, "put": put, "spin_put": spin_put, "get": get,
    "drop": drop, "drop_twice": drop_twice, "used": used, "fork": after_fork, "array": array,
    "churn": churn, "part": part, "when": when, "put_by": put_by, "get_by": get_by,
    "drop_by": drop_by,
}  # fmt: skip


def main() -> None:
    setup()
    chain = Chain(*map(int, sys.argv[1:]))
    say("ready")
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            say(COMMANDS[name](chain, *arguments))
        except (ChainError, TypeError) as fault:
            say(f"{type(fault).__name__}: {fault}")


if __name__ == "__main__":
    main()

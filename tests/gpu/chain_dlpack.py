"""A buffer of a chain as an array of PyTorch, JAX and CuPy.

`python -m tests.gpu.chain_dlpack [NAME...]`, in a job. The first process fills a buffer and puts
it; one for each library gets it, looks at all its words through DLPack without a copy, adds 1 to
them (JAX, whose arrays do not change, leaves them), and puts it. Prints a line for each library,
and JSON at last: by library `same` address and `right` words; or why it is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from gpu_lease.chain import NOW, Buffer, Chain
from tests.emugpu.program_api import MIB, d, launch, ok, setup, word, words

SIZE, BASE = 4 * MIB, 11
LIBRARIES = ("torch", "jax", "cupy")


def torch(buffer: Buffer) -> tuple[int, int]:
    """The array's address, and the sum of its words as signed ones."""
    import torch as library

    array = library.from_dlpack(buffer.array((SIZE // 4,), "<i4"))
    total = int(array.sum(dtype=library.int64))
    array += 1
    library.cuda.synchronize()
    return array.data_ptr(), total


def jax(buffer: Buffer) -> tuple[int, int]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax as library  # type: ignore[import-not-found]
    import numpy

    array = library.dlpack.from_dlpack(buffer.array((SIZE // 4,), "<i4"))
    total = int(numpy.asarray(array).sum(dtype=numpy.int64))
    return int(array.unsafe_buffer_pointer()), total


def cupy(buffer: Buffer) -> tuple[int, int]:
    import cupy as library  # type: ignore[import-not-found]

    array = library.from_dlpack(buffer.array((SIZE // 4,), "<i4"))
    total = int(array.sum(dtype=library.int64))
    array += 1
    library.cuda.runtime.deviceSynchronize()
    return int(array.data.ptr), total


def driver(buffer: Buffer) -> tuple[int, int]:
    """No library: for where there is none."""
    total = sum(one - (one >> 31 << 32) for one in words(buffer.pointer, SIZE // 4))
    ok(launch("add", buffer.pointer, SIZE // 4, 1, 1))
    ok(d.cuCtxSynchronize())
    return buffer.pointer, total


def take(name: str) -> None:
    """In a process of its own: the handle comes on standard input."""
    setup()
    chain = Chain()
    buffer = chain.get(bytes.fromhex(sys.stdin.readline()))
    looks = {"torch": torch, "jax": jax, "cupy": cupy, "driver": driver}
    try:
        at, total = looks[name](buffer)
        found: dict[str, Any] = {"same": at == buffer.pointer, "total": total}
    except ImportError as fault:
        found = {"absent": str(fault)}
    print(json.dumps(found | {"handle": chain.put(buffer, when=NOW).hex()}), flush=True)


def expected(added: int) -> int:
    total = 0
    for i in range(SIZE // 4):
        one = word(BASE + added, i)
        total += one - (one >> 31 << 32)
    return total


def main() -> None:
    if sys.argv[1:2] == ["take"]:
        take(sys.argv[2])
        return
    setup()
    chain = Chain(4 * SIZE)
    buffer = chain.alloc(SIZE)
    ok(launch("fill", buffer.pointer, SIZE // 4, BASE))
    handle, added, report = chain.put(buffer).hex(), 0, {}
    for name in sys.argv[1:] or LIBRARIES:
        command = [sys.executable, "-m", "tests.gpu.chain_dlpack", "take", name]
        child = subprocess.run(
            command, input=handle + "\n", stdout=subprocess.PIPE, text=True, check=False
        )
        if child.returncode:
            report[name] = {"failed": child.returncode}
            break
        found = json.loads(child.stdout.splitlines()[-1])
        handle = found.pop("handle")
        if "total" in found:
            found["right"] = found.pop("total") == expected(added)
            added += name != "jax"
        report[name] = found
        print(name, found, flush=True)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

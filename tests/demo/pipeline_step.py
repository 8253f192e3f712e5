"""A step of the pipeline of `make demo-chain`, as a user would write one: `pipeline_step.py NAME`.

    decode FRAMES | brighten | measure | encode FILE

Each is a process of its own. A frame stays on the GPU from the first to the last one: through the
pipes between them go handles of 64 bytes. Run it in a job with --gres=shard:1.
"""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

from gpu_lease.chain import HANDLE_BYTES, Buffer, Chain

KERNELS = Path(__file__).resolve().parents[1] / "emugpu" / "kernels.ptx"
HEIGHT, WIDTH = 512, 1024
SIZE = 4 * HEIGHT * WIDTH
BRIGHTER = 16
WIDE, NARROW = ctypes.c_uint64, ctypes.c_uint32


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    status, *results = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {status.name}")
    return results[0] if results else None


def kernel(name: str) -> Callable[..., None]:
    module = call(driver.cuModuleLoadData, KERNELS.read_bytes() + b"\0")
    function = call(driver.cuModuleGetFunction, module, name.encode())

    def launch(*values: int, types: tuple[Any, ...]) -> None:
        call(driver.cuLaunchKernel, function, 64, 1, 1, 256, 1, 1, 0, 0, (values, types), 0)

    return launch


def picture(number: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """A gradient that moves from frame to frame."""
    rows, columns = np.indices((HEIGHT, WIDTH), dtype=np.uint32)
    shades = (rows + columns + np.uint32(number)) % 240
    made: np.ndarray[Any, np.dtype[np.uint32]] = np.ascontiguousarray(shades, dtype=np.uint32)
    return made


def frames(chain: Chain) -> Iterator[Buffer]:
    """The frames whose handles come through the pipe, until it ends."""
    while handle := sys.stdin.buffer.read(HANDLE_BYTES):
        yield chain.get(handle)


def pass_on(chain: Chain, frame: Buffer) -> None:
    sys.stdout.buffer.write(chain.put(frame))
    sys.stdout.buffer.flush()


def decode(chain: Chain, count: str) -> None:
    for number in range(int(count)):
        frame = chain.alloc(SIZE)  # waits while all frames of the pool are on their way
        call(driver.cuMemcpyHtoD, frame.pointer, picture(number), SIZE)
        pass_on(chain, frame)


def brighten(chain: Chain) -> None:
    add = kernel("add")
    for frame in frames(chain):
        add(frame.pointer, SIZE // 4, BRIGHTER, 1, types=(WIDE, WIDE, NARROW, NARROW))
        pass_on(chain, frame)


def measure(chain: Chain) -> None:
    checksum, total = kernel("checksum"), call(driver.cuMemAlloc, 8)
    value = np.zeros(1, dtype=np.uint64)
    for number, frame in enumerate(frames(chain)):
        call(driver.cuMemsetD32, total, 0, 2)
        checksum(frame.pointer, SIZE // 4, int(total), types=(WIDE, WIDE, WIDE))
        call(driver.cuMemcpyDtoH, value, total, 8)
        print(f"frame {number}: checksum {int(value[0]):016x}", file=sys.stderr)
        pass_on(chain, frame)


def encode(chain: Chain, path: str) -> None:
    """Frames one after the other, each compressed, behind its length in 4 bytes."""
    host = np.empty((HEIGHT, WIDTH), dtype=np.uint32)
    with Path(path).open("wb") as out:
        for frame in frames(chain):
            call(driver.cuMemcpyDtoH, host, frame.pointer, SIZE)
            frame.drop()
            data = zlib.compress(host.tobytes())
            out.write(len(data).to_bytes(4, "little") + data)


def main() -> None:
    call(driver.cuInit, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, 0))
    step: dict[str, Callable[..., None]]
    step = {"decode": decode, "brighten": brighten, "measure": measure, "encode": encode}
    with Chain(8 * SIZE) as chain:
        step[sys.argv[1]](chain, *sys.argv[2:])


if __name__ == "__main__":
    main()

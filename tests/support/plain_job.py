"""A GPU job without any library but the driver's: it computes on memory of each of its GPUs.

    plain_job.py KERNELS MIB STEPS PAUSE_MS FILE

KERNELS is tests/emugpu/kernels.ptx. On each GPU that it sees the job takes MIB of memory and adds 1
to every word of it in each step. FILE has the number of the steps done; where there is FILE.last
no further one is done. At its end it compares all words with what they have to be, and prints
"right". It knows nothing of sharing.
"""

from __future__ import annotations

import ctypes
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST = 41  # of every word
WORD = 4

driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    """SystemExit names the function that failed, and the driver's number of the error."""
    status = getattr(driver, name)(*arguments)
    if status:
        raise SystemExit(f"{name}: error {status}")


@dataclass
class Buffer:
    """Memory of one GPU, in its context."""

    context: ctypes.c_void_p
    add: ctypes.c_void_p
    pointer: ctypes.c_uint64
    words: int

    def enter(self) -> None:
        call("cuCtxSetCurrent", self.context)

    def launch(self, value: int, rounds: int) -> None:
        """So many times: adds the value to every word."""
        values = (
            self.pointer,
            ctypes.c_uint64(self.words),
            ctypes.c_uint32(value),
            ctypes.c_uint32(rounds),
        )
        addresses = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        self.enter()
        call("cuLaunchKernel", self.add, 1024, 1, 1, 256, 1, 1, 0, None, addresses, None)

    def step(self) -> None:
        self.launch(1, 1)
        call("cuCtxSynchronize")

    def read(self, words: int) -> bytes:
        """The first of them."""
        host = ctypes.create_string_buffer(words * WORD)
        self.enter()
        call("cuMemcpyDtoH_v2", host, self.pointer, ctypes.c_size_t(words * WORD))
        return host.raw

    def write(self, data: bytes) -> None:
        self.enter()
        call("cuMemcpyHtoD_v2", self.pointer, data, ctypes.c_size_t(len(data)))

    def check(self, steps: int) -> None:
        if self.read(self.words) != (FIRST + steps).to_bytes(WORD, "little") * self.words:
            raise SystemExit("the memory is not what it has to be")


def allocate(kernels: bytes, number: int, size: int) -> Buffer:
    """`size` bytes on the GPU `number` of those that the job sees."""
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    add, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), number)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), kernels + b"\0")
    call("cuModuleGetFunction", ctypes.byref(add), module, b"add")
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    call("cuMemsetD32_v2", pointer, ctypes.c_uint32(FIRST), ctypes.c_size_t(size // WORD))
    return Buffer(context, add, pointer, size // WORD)


def main() -> None:
    kernels = Path(sys.argv[1]).read_bytes()
    mib, steps, pause_ms = map(int, sys.argv[2:5])
    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    buffers = [allocate(kernels, number, mib << 20) for number in range(count.value)]
    done, file = 0, Path(sys.argv[5])
    while done < steps and not file.with_name(file.name + ".last").exists():
        for buffer in buffers:
            buffer.step()
        done += 1
        file.write_text(str(done))
        time.sleep(pause_ms / 1000)
    for buffer in buffers:
        buffer.check(done)
    print("right on", count.value, "GPUs", flush=True)


if __name__ == "__main__":
    main()

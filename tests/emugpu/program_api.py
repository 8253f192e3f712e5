"""What programs of tests use of CUDA: they begin with `from tests.emugpu.program_api import *`."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

from tests.emugpu.bindings import driver as d

__all__ = ["MIB", "ctypes", "d", "error", "functions", "launch", "ok", "os", "say", "setup"]
__all__ += ["sys", "threading", "wait", "word", "words"]

MIB = 1 << 20
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "fill": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
    "add": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32),
    "checksum": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64),
    "spin": (ctypes.c_uint64,),
    "empty": (),
}
functions: dict[str, Any] = {}


def error(result: tuple[Any, ...]) -> str:
    """The name of what a call returned, without CUDA_ERROR_."""
    return str(result[0].name).removeprefix("CUDA_ERROR_")


def ok(result: tuple[Any, ...]) -> Any:
    assert error(result) == "CUDA_SUCCESS", error(result)
    return result[1] if len(result) == 2 else result[1:]


def setup(device: int = 0) -> Any:
    """Initialize, make the device's primary context current and load the kernels."""
    ok(d.cuInit(0))
    context = ok(d.cuDevicePrimaryCtxRetain(device))
    ok(d.cuCtxSetCurrent(context))
    functions.update(load())
    return context


def kernels_image() -> bytes:
    """The file of the kernels, as a module is loaded of it. Without server.py and pathlib, which
    take as long to import as all else that hundreds of programs need."""
    with open(f"{os.path.dirname(__file__)}/kernels.ptx", "rb") as file:  # noqa: PTH120, PTH123
        return file.read() + b"\0"


def load() -> dict[str, Any]:
    """The kernels by name, for the current context."""
    module = ok(d.cuModuleLoadData(kernels_image()))
    return {name: ok(d.cuModuleGetFunction(module, name.encode())) for name in PARAMETERS}


def launch(name: str, *values: Any, stream: Any = 0, grid: int = 4, block: int = 64) -> Any:
    """Launch a kernel; returns what cuLaunchKernel returned."""
    parameters = (tuple(int(v) for v in values), PARAMETERS[name])
    return d.cuLaunchKernel(functions[name], grid, 1, 1, block, 1, 1, 0, stream, parameters, 0)


def words(pointer: Any, n: int) -> list[int]:
    """n 32-bit words from device memory."""
    host = bytearray(4 * n)
    ok(d.cuMemcpyDtoH(host, pointer, len(host)))
    return memoryview(host).cast("I").tolist()


def word(base: int, i: int) -> int:
    """What fill(base) writes to word i."""
    return (base + i * 2654435761) % 2**32


def say(*what: Any) -> None:
    """In one write, since several processes of a program may write to one pipe at once."""
    os.write(1, (" ".join(map(str, what)) + "\n").encode())


def wait() -> None:
    """Until the test says go on."""
    assert sys.stdin.readline()

"""How often a step of a program calls each function of the driver."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.gpu.build import build


class CannotCount(RuntimeError):
    """There is no CUPTI, or it refuses."""


def _libraries() -> Iterator[str]:
    """CUPTI: the one that is loaded, that of an installed framework, or of a toolkit."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libcupti.so" in line:
            yield line.split(maxsplit=5)[5]
    for directory in filter(None, sys.path):
        yield from map(str, Path(directory).glob("nvidia/**/libcupti.so*"))
    yield from map(str, Path("/usr/local").glob("cuda*/extras/CUPTI/lib64/libcupti.so.*"))


def count(run: Callable[[], object]) -> dict[str, int]:
    """The driver's functions that are called meanwhile, in every thread."""
    counter = ctypes.CDLL(str(build("count_calls")))
    counter.count_name.restype = ctypes.c_char_p
    counter.count_calls.restype = ctypes.c_ulong
    library = next(_libraries(), None)
    if library is None:
        raise CannotCount("no libcupti.so is installed")
    result = counter.count_begin(library.encode())
    if result:
        raise CannotCount(f"{library}: error {result} of CUPTI")
    run()
    counter.count_end()
    names = ((n, counter.count_name(n)) for n in range(counter.count_size()))
    return {name.decode(): int(counter.count_calls(n)) for n, name in names if name}

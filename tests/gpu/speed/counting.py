"""How often a program calls each function of the driver: in a step, or as long as it runs."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    for place in ("extras/CUPTI/lib64", "lib64", "lib"):
        yield from map(str, Path("/usr/local").glob(f"cuda*/{place}/libcupti.so.*"))


def cupti() -> str:
    """The path of CUPTI's library."""
    library = next(_libraries(), None)
    if library is None:
        raise CannotCount("no libcupti.so is installed")
    return library


def count(run: Callable[[], object]) -> dict[str, int]:
    """The driver's functions that are called meanwhile, in every thread."""
    counter = ctypes.CDLL(str(build("count_calls")))
    counter.count_name.restype = ctypes.c_char_p
    counter.count_calls.restype = ctypes.c_ulong
    library = cupti()
    result = counter.count_begin(library.encode())
    if result:
        raise CannotCount(f"{library}: error {result} of CUPTI")
    run()
    counter.count_end()
    names = ((n, counter.count_name(n)) for n in range(counter.count_size()))
    return {name.decode(): int(counter.count_calls(n)) for n, name in names if name}


# -- whole programs -----------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """The calls of all processes of a program. span_s: from the first call to the last one.

    unfinished: processes that called the driver and did not end by exit(); what they called is
    not known.
    """

    calls: dict[str, int]
    span_s: float
    processes: int
    unfinished: int = 0


def injected(folder: Path) -> dict[str, str]:
    """The environment in which every process that uses the driver writes its calls there."""
    return {
        "CUDA_INJECTION64_PATH": str(build("count_calls")),
        "COUNT_CALLS_CUPTI": cupti(),
        "COUNT_CALLS_DIR": str(folder),
    }


def read_counts(folder: Path) -> Counted:
    """What the processes left. CannotCount: none counted."""
    texts = [file.read_text().splitlines() for file in folder.iterdir()]
    counted = [lines for lines in texts if lines and lines[0].startswith("counted ")]
    refused = [lines[0] for lines in texts if lines and lines[0].startswith("refused ")]
    if refused:
        raise CannotCount(f"CUPTI's error {refused[0].split()[1]}")
    if not counted:
        words = "no process ended by exit()" if texts else "the driver loaded no counter"
        raise CannotCount(words)
    calls = Counter[str]()
    for lines in counted:
        for line in lines[1:]:
            name, n = line.split()
            calls[name] += int(n)
    # A process that initializes the driver and calls nothing has 0 for both.
    times = [tuple(map(int, lines[0].split()[1:])) for lines in counted]
    used = [(first, last) for first, last in times if first]
    span = max(last for _, last in used) - min(first for first, _ in used) if used else 0
    return Counted(dict(calls), span / 1e9, len(counted), len(texts) - len(counted))

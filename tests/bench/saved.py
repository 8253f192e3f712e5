"""What a checkpoint's files take, beside one plain file: `make bench NAME=saved`.

The memory of another process, random bytes in huge pages as the interposer's copies, is written to
files and comes back from them into fresh memory of that process, on the disk and in memory
(/dev/shm), by turns with a plain file of as many bytes. Writes build/bench/saved.json, for each of
the two places medians of `--turns`: `save_bytes`; `checkpoint_s`, `restore_s` and `disk_s`: to
write them with checksums until the disk has them, to read, compare and copy them, and the plain
file until the disk has it; `checkpoint_cpu_s`, `restore_cpu_s` and `disk_cpu_s`: what processors
did for these, which tells more where others use the machine; `of_disk`: `checkpoint_s` of
`disk_s`, and `of_disk_cpu` likewise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from leased.saving import bytes_file
from leased.saving.process import ProcessMemory
from tests.bench import write

MIB = 1 << 20
SAVED = 256 * MIB
PART = 64 * MIB
IN_MEMORY = Path("/dev/shm")
NAMES = (
    *("checkpoint_s", "checkpoint_cpu_s"),
    *("restore_s", "restore_cpu_s"),
    *("disk_s", "disk_cpu_s"),
)
HAS_BYTES = r"""
import ctypes, hashlib, mmap, os, sys
size, part = int(sys.argv[1]), int(sys.argv[2])
has = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
libc = ctypes.CDLL(None)
at = ctypes.addressof(ctypes.c_char.from_buffer(has))
HUGE, FRESH = 14, 4
libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), HUGE)
for done in range(0, size, part):
    has[done:done + part] = os.urandom(min(part, size - done))
print(at, flush=True)
for order in sys.stdin:
    if order == "lose\n":
        libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), FRESH)
        print(flush=True)
    else:
        print(hashlib.sha1(memoryview(has)).hexdigest(), flush=True)
"""


class Other:
    """A process with `size` bytes."""

    def __init__(self, size: int):
        command = [sys.executable, "-c", HAS_BYTES, str(size), str(PART)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.at = int(self._line())

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def ask(self, what: str) -> str:
        """`digest`: of its bytes. `lose`: they are zeros from now on, without memory."""
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self._line()


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and those of processors."""
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    act()
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    return took, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def write_plain(path: Path, data: bytes, size: int) -> None:
    with path.open("wb") as plain:
        for _ in range(size // len(data)):
            plain.write(data)
        plain.flush()
        os.fsync(plain.fileno())


def checkpoint_times(work: Path, size: int = SAVED, turns: int = 3) -> dict[str, float]:
    other, times = Other(size), []
    right, ranges = other.ask("digest"), [(other.at, size)]
    with ProcessMemory(other.process.pid) as memory:
        save = partial(bytes_file.write, memory.read, ranges, work, "saved")
        load = partial(bytes_file.restore, memory.write, work, "saved")
        plain = partial(write_plain, work / "plain", os.urandom(PART), size)
        for _ in range(turns):
            saved, written = timed(save), timed(plain)
            other.ask("lose")
            times.append((*saved, *timed(load), *written))
            assert other.ask("digest") == right
            for file in work.iterdir():
                file.unlink()
    other.process.kill()
    other.process.wait()
    medians = [statistics.median(each) for each in zip(*times)]
    found = {name: round(took, 3) for name, took in zip(NAMES, medians)}
    of_disk, of_cpu = medians[0] / medians[4], medians[1] / medians[5]
    return {
        "save_bytes": size,
        **found,
        "of_disk": round(of_disk, 2),
        "of_disk_cpu": round(of_cpu, 2),
    }


def run(work: Path, size: int, turns: int) -> dict[str, dict[str, float]]:
    in_memory = Path(mkdtemp(dir=IN_MEMORY))
    try:
        places = {"disk": work, "memory": in_memory}
        return {name: checkpoint_times(place, size, turns) for name, place in places.items()}
    finally:
        shutil.rmtree(in_memory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    found = write("saved", lambda work: run(work, chosen.mib * MIB, chosen.turns))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

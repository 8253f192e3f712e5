"""The memory of another process is read and written, and is no other process's once that ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leased.saving.process import ProcessMemory

SIZE = 3 << 20
HAS_BYTES = f"""
import ctypes, sys
data = ctypes.create_string_buffer({SIZE})
print(ctypes.addressof(data), flush=True)
sys.stdin.readline()
print(data.raw.count(b"x"), flush=True)
"""


@contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process, and where it has SIZE bytes of zeros."""
    command = [sys.executable, "-c", HAS_BYTES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        yield process, int(process.stdout.readline())
        process.kill()


def test_what_is_written_there_is_read_there() -> None:
    with another() as (process, at), ProcessMemory(process.pid) as memory:
        assert process.stdin
        assert process.stdout
        memory.write(at + 5, memoryview(bytearray(b"x" * (SIZE - 9))))
        data = bytearray(SIZE)
        memory.read(at, memoryview(data))
        assert data == bytes(5) + b"x" * (SIZE - 9) + bytes(4)
        process.stdin.write("\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == SIZE - 9


def test_where_nothing_is_mapped_is_an_error() -> None:
    with another() as (process, at), ProcessMemory(process.pid) as memory:
        with pytest.raises(OSError, match=r"Bad address|Input/output error"):
            memory.read(1 << 12, memoryview(bytearray(SIZE)))
        memory.read(at, memoryview(bytearray(1)))


def test_a_process_that_has_ended_has_no_memory() -> None:
    """Nor has one that has its number by then."""
    with (
        another() as (process, at),
        another() as (other, there),
        ProcessMemory(process.pid) as memory,
    ):
        process.kill()
        process.wait()
        for memory.pid, where in ((process.pid, at), (other.pid, there)):
            with pytest.raises(OSError, match="No such process"):
                memory.read(where, memoryview(bytearray(1)))
            with pytest.raises(OSError, match="No such process"):
                memory.write(where, memoryview(bytearray(1)))

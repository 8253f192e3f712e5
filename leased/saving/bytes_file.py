"""Parts of a process's memory as files: sparse, with a checksum for each block, and written so
that a write that was cut off goes on where it ended.

All ranges, one behind the other, are cut into blocks of BLOCK bytes, each of one range. FILES
files take them by turns, NAME.0.bytes the first one, since a file system lets one thread at a time
write to a file; blocks of zeros are holes. NAME.index is JSON: format, block, files, ranges
([[address, bytes], ...]) and sums, CRC-32 of each block or null where it is all zeros. The index is
written last, when the bytes are on the disk.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, TypeVar

from leased.base import text_file

FORMAT = 2
BLOCK = 4 << 20
FILES = 16
THREADS = 8
ZEROS = bytes(BLOCK)
MODE = 0o600

Range = tuple[int, int]  # address, bytes
# Reads into it, or writes it, at that address of a process. OSError: it cannot be reached.
Copy = Callable[[int, memoryview], None]
Sum = Optional[int]
T = TypeVar("T")
R = TypeVar("R")


class Damaged(Exception):
    """A file is not what was written; the text says which, and where."""


class Block(NamedTuple):
    at: int  # its address
    size: int
    file: int  # the number of its file
    offset: int  # in that


@dataclass(frozen=True)
class Index:
    ranges: tuple[Range, ...]
    sums: tuple[Sum, ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.ranges)


def blocks_of(ranges: Sequence[Range]) -> list[Block]:
    parts = [
        (start + done, min(BLOCK, size - done))
        for start, size in ranges
        for done in range(0, size, BLOCK)
    ]
    return [Block(*part, n % FILES, n // FILES * BLOCK) for n, part in enumerate(parts)]


def _paths(directory: Path, name: str) -> list[Path]:
    return [directory / f"{name}.{n}.bytes" for n in range(FILES)]


def _sizes(blocks: Iterable[Block]) -> list[int]:
    """Of the files."""
    sizes = [0] * FILES
    for block in blocks:
        sizes[block.file] = block.offset + block.size
    return sizes


@contextmanager
def _opened(paths: Iterable[Path], flags: int) -> Iterator[list[int]]:
    files: list[int] = []
    try:
        for path in paths:
            files.append(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, MODE))
        yield files
    finally:
        for file in files:
            os.close(file)


class _Buffer(threading.local):
    """Each thread's own, since fresh memory for each block would cost as much as a copy of it."""

    def __init__(self) -> None:
        self.data, self.before = bytearray(BLOCK), bytearray(BLOCK)

    def of(self, size: int) -> tuple[bytearray, bytearray]:
        """Two, of that size. (Arrays of bytes are compared by memcmp(), views of them are not.)"""
        whole = size == BLOCK
        return (self.data, self.before) if whole else (bytearray(size), bytearray(size))


def _each(act: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """In threads; the first failure ends it."""
    threads = min(THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(act, items))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


# -- writing ------------------------------------------------------------------------------


def missing_bytes(directory: Path, name: str, ranges: Sequence[Range]) -> int:
    """How much of the disk writing them will take at most, beside what has been written."""
    there = sum(p.stat().st_blocks * 512 for p in _paths(directory, name) if p.exists())
    return max(0, sum(size for _, size in ranges) - there)


def write(read: Copy, ranges: Sequence[Range], directory: Path, name: str) -> Index:
    """Save what `read` finds there. Blocks that the files have already are not written again.
    OSError: the disk or the process fails; what has been written stays for the next try."""
    blocks = blocks_of(ranges)
    (directory / f"{name}.index").unlink(missing_ok=True)
    with _opened(_paths(directory, name), os.O_RDWR | os.O_CREAT) as files:
        there = [os.fstat(file).st_size for file in files]
        buffer = _Buffer()

        def save(block: Block) -> Sum:
            data, before = buffer.of(block.size)
            read(block.at, memoryview(data))
            old = before if block.offset < there[block.file] else None
            return _save(files[block.file], block.offset, data, old)

        sums = tuple(_each(save, blocks))
        for file, size in zip(files, _sizes(blocks)):
            os.ftruncate(file, size)
        _each(os.fsync, files)
    index = Index(tuple(ranges), sums)
    told = {"format": FORMAT, "block": BLOCK, "files": FILES, "ranges": ranges, "sums": sums}
    text_file.replace(directory / f"{name}.index", json.dumps(told), MODE, sync=True)
    return index


def _save(file: int, offset: int, data: bytearray, old: bytearray | None) -> Sum:
    """old: for what an earlier try may have written there; None: there is nothing."""
    zero = data == ZEROS[: len(data)]
    if old is None:
        if not zero:
            _write_all(file, memoryview(data), offset)
    elif os.preadv(file, [old], offset) < len(old) or old != data:
        _write_all(file, memoryview(data), offset)
    return None if zero else zlib.crc32(data)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        n = os.pwrite(file, data, offset)
        data, offset = data[n:], offset + n


# -- reading ------------------------------------------------------------------------------


def read_index(directory: Path, name: str) -> Index:
    """Damaged: there is none, or it makes no sense."""
    path = directory / f"{name}.index"
    try:
        told = json.loads(path.read_bytes())
        if (told["format"], told["block"], told["files"]) != (FORMAT, BLOCK, FILES):
            raise Damaged(f"{path} is of another release")
        ranges = tuple((int(at), int(size)) for at, size in told["ranges"])
        sums = tuple(None if one is None else int(one) for one in told["sums"])
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise Damaged(f"{path} cannot be read: {fault}") from None
    if len(sums) != len(blocks_of(ranges)):
        raise Damaged(f"{path} has {len(sums)} checksums for {len(blocks_of(ranges))} blocks")
    return Index(ranges, sums)


def verify(directory: Path, name: str) -> Index:
    """Read all of it. Damaged: a block is not what was written."""
    return restore(lambda *_: None, directory, name)


def restore(write: Copy, directory: Path, name: str) -> Index:
    """Write all ranges to a process's memory, which has zeros there. Damaged: a block is not what
    was written. OSError: the process cannot be reached."""
    index = read_index(directory, name)
    blocks, paths, buffer = blocks_of(index.ranges), _paths(directory, name), _Buffer()
    for path, size in zip(paths, _sizes(blocks)):
        _check_size(path, size)
    with _opened(paths, os.O_RDONLY) as files:

        def load(block_and_sum: tuple[Block, Sum]) -> None:
            block, expected = block_and_sum
            if expected is None:
                return
            data, _ = buffer.of(block.size)
            read = os.preadv(files[block.file], [data], block.offset)
            if read < block.size or zlib.crc32(data) != expected:
                raise Damaged(f"{paths[block.file]} is damaged at byte {block.offset}")
            write(block.at, memoryview(data))

        _each(load, zip(blocks, index.sums))
    return index


def _check_size(path: Path, size: int) -> None:
    """Damaged: the file is not so large."""
    try:
        found = path.stat().st_size
    except OSError as fault:
        raise Damaged(f"{path}: {fault.strerror}") from None
    if found != size:
        raise Damaged(f"{path} has not {size} bytes")

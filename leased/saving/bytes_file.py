"""Parts of a process's memory as a file: sparse, with a checksum for each block, and written so
that a write that was cut off goes on where it ended.

NAME.bytes has all ranges one behind the other, in blocks of BLOCK bytes, each of one range; blocks
of zeros are holes. NAME.index is JSON: format, block, ranges ([[address, bytes], ...]) and sums,
CRC-32 of each block or null where it is all zeros. The index is written last, when the bytes are
on the disk.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

FORMAT = 1
BLOCK = 4 << 20
THREADS = 8
ZEROS = bytes(BLOCK)
MODE = 0o600

Range = tuple[int, int]  # address, bytes
Sum = Optional[int]


class Damaged(Exception):
    """A file is not what was written; the text says which, and where."""


class Memory(Protocol):
    """Of a process. OSError: it cannot be reached."""

    def read(self, at: int, into: memoryview) -> None: ...

    def write(self, at: int, data: memoryview) -> None: ...


class Block(NamedTuple):
    at: int  # its address
    offset: int  # in the file
    size: int


@dataclass(frozen=True)
class Index:
    ranges: tuple[Range, ...]
    sums: tuple[Sum, ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.ranges)


def blocks_of(ranges: Sequence[Range]) -> list[Block]:
    found, offset = [], 0
    for start, size in ranges:
        for done in range(0, size, BLOCK):
            part = min(BLOCK, size - done)
            found.append(Block(start + done, offset + done, part))
        offset += size
    return found


def missing_bytes(directory: Path, name: str, ranges: Sequence[Range]) -> int:
    """How much of the disk writing them will take at most, beside what has been written."""
    try:
        there = (directory / f"{name}.bytes").stat().st_blocks * 512
    except FileNotFoundError:
        there = 0
    return max(0, sum(size for _, size in ranges) - there)


def write(memory: Memory, ranges: Sequence[Range], directory: Path, name: str) -> Index:
    """Save them. Blocks that the file has already are not written again. OSError: the disk or the
    process fails; what has been written stays for the next try."""
    blocks = blocks_of(ranges)
    path = directory / f"{name}.bytes"
    (directory / f"{name}.index").unlink(missing_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        there = os.fstat(file).st_size

        def save(block: Block) -> Sum:
            data = bytearray(block.size)
            memory.read(block.at, memoryview(data))
            return _save(file, block, data, there)

        sums = tuple(_each(save, blocks))
        os.ftruncate(file, sum(size for _, size in ranges))
        os.fsync(file)
    finally:
        os.close(file)
    index = Index(tuple(ranges), sums)
    told = {"format": FORMAT, "block": BLOCK, "ranges": index.ranges, "sums": sums}
    write_whole(directory / f"{name}.index", json.dumps(told).encode())
    return index


def _save(file: int, block: Block, data: bytearray, there: int) -> Sum:
    """there: bytes of the file that an earlier try may have written. (Arrays of bytes are compared
    by memcmp(), views of them are not.)"""
    zero = data == ZEROS[: block.size]
    old = block.offset < there
    if old:
        before = os.pread(file, block.size, block.offset)
        old = before != ZEROS[: len(before)]
        if before == data:
            return None if zero else zlib.crc32(data)
    if not zero or old:
        _write_all(file, memoryview(data), block.offset)
    return None if zero else zlib.crc32(data)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data:
        n = os.pwrite(file, data, offset)
        data, offset = data[n:], offset + n


def _each(act: Callable[[Block], Sum], blocks: Sequence[Block]) -> Iterator[Sum]:
    """In threads, in their order; the first failure ends it."""
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        try:
            yield from pool.map(act, blocks)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def write_whole(path: Path, data: bytes) -> None:
    """A small file, all of it or nothing. OSError."""
    fresh = path.with_name(f"{path.name}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    try:
        _write_all(file, memoryview(data), 0)
        os.fsync(file)
    finally:
        os.close(file)
    fresh.replace(path)


def read_index(directory: Path, name: str) -> Index:
    """Damaged: there is none, or it makes no sense."""
    path = directory / f"{name}.index"
    try:
        told = json.loads(path.read_bytes())
        if (told["format"], told["block"]) != (FORMAT, BLOCK):
            raise Damaged(f"{path} is of another release")
        ranges = tuple((int(at), int(size)) for at, size in told["ranges"])
        sums = tuple(None if one is None else int(one) for one in told["sums"])
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise Damaged(f"{path} cannot be read: {fault}") from None
    if len(sums) != len(blocks_of(ranges)):
        raise Damaged(f"{path} has {len(sums)} checksums for {len(blocks_of(ranges))} blocks")
    return Index(ranges, sums)


class _Nowhere:
    """For verify(): it is read and checked, and goes nowhere."""

    def read(self, at: int, into: memoryview) -> None:
        raise NotImplementedError

    def write(self, at: int, data: memoryview) -> None: ...


def verify(directory: Path, name: str) -> Index:
    """Read all of it. Damaged: a block is not what was written."""
    return restore(_Nowhere(), directory, name)


def restore(memory: Memory, directory: Path, name: str) -> Index:
    """Write all ranges to a process's memory, which has zeros there. Damaged: a block is not what
    was written. OSError: the process cannot be reached."""
    index = read_index(directory, name)
    path = directory / f"{name}.bytes"
    blocks = blocks_of(index.ranges)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as fault:
        raise Damaged(f"{path}: {fault.strerror}") from None
    try:
        if os.fstat(file).st_size != index.size:
            raise Damaged(f"{path} has not {index.size} bytes")
        expected = dict(zip((block.offset for block in blocks), index.sums))

        def load(block: Block) -> Sum:
            if expected[block.offset] is None:
                return None
            data = _read_all(file, block)
            if zlib.crc32(data) != expected[block.offset]:
                raise Damaged(f"{path} is damaged at byte {block.offset}")
            memory.write(block.at, memoryview(data))
            return None

        list(_each(load, blocks))
    finally:
        os.close(file)
    return index


def _read_all(file: int, block: Block) -> bytearray:
    data = bytearray(block.size)
    view, offset = memoryview(data), block.offset
    while view:
        n = os.preadv(file, [view], offset)
        if not n:
            break
        view, offset = view[n:], offset + n
    return data

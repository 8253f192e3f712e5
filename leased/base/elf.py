"""Numbers in a shared library's file, read without loading it: check runs as root."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

PT_LOAD = 1
SHT_DYNSYM = 11


def number(path: Path, name: str) -> int | None:
    """The 32-bit number that the library exports under this name; None: there is none.

    Only 64-bit little-endian files (x86-64, aarch64) are understood. OSError: unreadable.
    """
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return next((_load(data, value) for key, value in _symbols(data) if key == name), None)
    except (struct.error, IndexError):
        return None  # cut off, or no library


def _symbols(data: bytes) -> Iterator[tuple[str, int]]:
    """Exported names and their addresses."""
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + n * size) for n in range(count)]
    for section in sections:
        if section[1] != SHT_DYNSYM:
            continue
        offset, length, strings = section[4], section[5], sections[section[6]][4]
        for at in range(offset, offset + length, 24):
            key, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if index:  # defined here
                end = data.index(b"\0", strings + key)
                yield data[strings + key : end].decode(errors="replace"), value


def _load(data: bytes, address: int) -> int | None:
    """The 32-bit number that stands at an address once the file is loaded."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for n in range(count):
        kind, _, offset, where, _, length, *_ = struct.unpack_from(
            "<IIQQQQQQ", data, start + n * size
        )
        if kind == PT_LOAD and where <= address < where + length:
            return int(struct.unpack_from("<I", data, offset + address - where)[0])
    return None

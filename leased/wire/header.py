"""The header that every message of shim/base/wire.h begins with, and the protocol's versions."""

from __future__ import annotations

import functools
import sys
from typing import Any

from _gpulease import ffi, lib

from leased.wire.table import MESSAGES, POINTERS

MAX_MESSAGE: int = lib.GL_MAX_MESSAGE
VERSION: int = lib.GL_VERSION
OLDEST_VERSION: int = lib.GL_OLDEST_VERSION
MAGIC: int = lib.GL_MAGIC
SIZE = ffi.sizeof("struct gl_header")
_POINTER = ffi.typeof("struct gl_header *")
VERSION_AT = slice(4, 6)  # bytes of the header, in every version


class WireError(Exception):
    """A message that breaks the protocol; the text says how."""


class WrongVersion(WireError):
    """A sound header of a version that is not served.

    answer: the version in which to say so, the lower one of both sides', which both can read.
    """

    def __init__(self, version: int):
        newer = version > VERSION
        super().__init__(
            f"its interposer speaks version {version} of the protocol, and gpu-leased "
            f"{OLDEST_VERSION} to {VERSION}: "
            + ("restart gpu-leased after its update" if newer else "submit the job again")
        )
        self.answer = min(version, VERSION)


def check_header(data: bytes) -> int:
    """The type of a message whose header is sound; WireError otherwise."""
    if len(data) < SIZE:
        raise WireError(f"a message of {len(data)} bytes")
    header = ffi.from_buffer(_POINTER, data)
    if header.magic != MAGIC or header.length != len(data):
        raise WireError("no header of ours")
    if not OLDEST_VERSION <= header.version <= VERSION:
        raise WrongVersion(int(header.version))
    return int(header.type)


def version_of(data: bytes) -> int:
    """The protocol's version of a message whose header is sound."""
    return int.from_bytes(data[VERSION_AT], sys.byteorder)


def in_version(data: bytes, version: int) -> bytes:
    """The same message with this version in its header, for a client that speaks it."""
    if version_of(data) == version:
        return data
    said = version.to_bytes(2, sys.byteorder)
    return data[: VERSION_AT.start] + said + data[VERSION_AT.stop :]


def new(kind: int) -> Any:
    """A C struct for a message of this type: its header is filled, all else is zero."""
    message = ffi.new(POINTERS[kind])
    ffi.memmove(message, sound(kind, VERSION), SIZE)
    return message


@functools.cache  # there are no more than types, times versions that are served
def sound(kind: int, version: int) -> bytes:
    """The header of a message of this type."""
    header = ffi.new(_POINTER)
    header.magic, header.version = MAGIC, version
    header.type, header.length = kind, MESSAGES[kind].size
    return bytes(ffi.buffer(header))

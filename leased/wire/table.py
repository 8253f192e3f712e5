"""The types of messages, as shim/base/messages.def lists them: the one table of both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from _gpulease import ffi, lib


@dataclass(frozen=True)
class MessageType:
    name: str  # GL_ and this is the number's name
    number: int
    body: str  # the C struct of the whole message
    size: int
    of_client: bool  # else of the daemon


def _rows() -> Iterator[MessageType]:
    index = 0
    while (row := lib.gl_message_at(index)) != ffi.NULL:
        name, body = (ffi.string(text).decode() for text in (row.name, row.body))
        of_client = row.sender == lib.GL_CLIENT
        yield MessageType(name, int(row.type), body, int(row.size), of_client)
        index += 1


MESSAGES: dict[int, MessageType] = {row.number: row for row in _rows()}
# Pointers to the structs: a type is found faster than by its words.
POINTERS: dict[int, Any] = {n: ffi.typeof(f"struct {row.body} *") for n, row in MESSAGES.items()}

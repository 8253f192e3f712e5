"""The types of messages, as shim/base/messages.def lists them: the one table of both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
OF_CLIENTS = tuple(row for row in MESSAGES.values() if row.of_client)
OF_THE_DAEMON = tuple(row for row in MESSAGES.values() if not row.of_client)

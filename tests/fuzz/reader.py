"""Choices from the bytes of a fuzzer's input."""

from __future__ import annotations

from typing import Any


class Reader:
    """Takes choices from bytes; behind their end everything is zero."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def number(self) -> int:
        return int.from_bytes(self.bytes(8), "little")

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at].ljust(size, b"\0")

    def pick(self, choices: tuple[Any, ...]) -> Any:
        return choices[self.byte() % len(choices)]

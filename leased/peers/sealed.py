"""Frames on a connection: their length, and once both sides know a key, a code that proves them.

A frame is four bytes of length and so many of content. A sealed one ends with TAG bytes of an HMAC
over its number and its content, so no frame can be changed, left out, repeated or moved.
"""

from __future__ import annotations

import hashlib
import hmac

LENGTH = 4
LONGEST = 4096  # bytes of content and tag
TAG = 16


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(LENGTH, "big") + content


class Seal:
    """One direction of a connection; each side has one of each."""

    def __init__(self, key: bytes):
        self.key = key
        self.number = 0

    def _tag(self, content: bytes) -> bytes:
        numbered = self.number.to_bytes(8, "big") + content
        self.number += 1
        return hmac.digest(self.key, numbered, hashlib.sha256)[:TAG]

    def seal(self, content: bytes) -> bytes:
        """The frame of this content."""
        return framed(content + self._tag(content))

    def opened(self, sealed: bytes) -> bytes:
        """The content of a frame. ValueError: it is not what the other side has sealed next."""
        content, tag = sealed[:-TAG], sealed[-TAG:]
        if not hmac.compare_digest(tag, self._tag(content)):
            raise ValueError("a frame that is not proven")
        return content

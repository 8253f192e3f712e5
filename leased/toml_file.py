"""Read a TOML file. Whatever stands in its place or in it is refused in one sentence."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from leased.errors import Refused

MOST_BYTES = 1 << 20


def read(path: Path) -> bytes:
    """What the file has. FileNotFoundError: there is none. Refused: it cannot be read."""
    try:
        # A FIFO must not make us wait for somebody who writes.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise Refused(f"cannot read {path}: {_words(fault)}") from None
    try:
        return _content(file, path)
    except OSError as fault:
        raise Refused(f"cannot read {path}: {_words(fault)}") from None
    finally:
        os.close(file)


def _content(file: int, path: Path) -> bytes:
    mode = os.fstat(file).st_mode
    if stat.S_ISDIR(mode):
        raise Refused(f"{path} is a directory", "name the file itself")
    if not stat.S_ISREG(mode):
        raise Refused(f"{path} is no regular file", "put a text file there")
    with os.fdopen(os.dup(file), "rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Refused(f"{path} is larger than {MOST_BYTES} bytes", "is it the right file?")
    return data


def _words(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or str(fault)


def parse(data: bytes) -> dict[str, Any]:
    """The tables of the text. Refused: it is no TOML, with the line where one is known."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise Refused(f"line {line} is not UTF-8", "save the file as UTF-8") from None
    except RecursionError:
        raise Refused("it is nested too deep", "write plain tables") from None
    except ValueError as fault:  # TOMLDecodeError is one; so is a number of too many digits
        words = "".join(c if c.isprintable() else "?" for c in str(fault))[:200]
        raise Refused(f"it is no TOML: {words}", "correct the line") from None

"""Read a TOML file. Whatever stands in its place or in it is refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leased.base import text_file
from leased.base.errors import Refused

if sys.version_info >= (3, 11):
    import tomllib
else:  # that of which Python's own was made
    import tomli as tomllib

MOST_BYTES = 1 << 20


def read(path: Path) -> bytes:
    """The content of the file. FileNotFoundError: there is none. Refused: it cannot be read."""
    try:
        return text_file.read(path, MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise Refused(f"cannot read {path}: {fault.strerror}", "put a text file there") from None


def parse(data: bytes) -> dict[str, Any]:
    """The tables of the text. Refused: it is not TOML, with the line where one is known."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise Refused(f"line {line} is not UTF-8", "save the file as UTF-8") from None
    except RecursionError:
        raise Refused("it is nested too deep", "write plain tables") from None
    except ValueError as fault:  # TOMLDecodeError is one; so is a number of too many digits
        words = "".join(c if c.isprintable() else "?" for c in str(fault))[:200]
        raise Refused(f"it is not TOML: {words}", "correct the line") from None

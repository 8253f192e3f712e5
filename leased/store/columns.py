"""Checks the values of the store's rows: SQLite keeps anything in any column.

Each function returns a value of the kind that its column should have. ValueError: it is another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from leased.base.requests import shown

Row = Mapping[str, Any]
LONGEST = 65_536  # characters of a text
LATEST_S = 1e11  # seconds since the epoch; a time above is none


def whole(row: Row, name: str, low: int, high: int) -> int:
    value = row[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {shown(value)}, not a whole number from {low} to {high}")
    return value


def seconds(row: Row, name: str) -> float:
    """A time in seconds since the epoch."""
    value = row[name]
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} is {shown(value)}, not a time")
    if not 0 <= value <= LATEST_S:
        raise ValueError(f"{name} is {shown(value)}, not a time in seconds since 1970")
    return float(value)


def text(row: Row, name: str, longest: int = LONGEST) -> str:
    value = row[name]
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(
            f"{name} is {shown(value)[:60]}, not a text of at most {longest} characters"
        )
    return value


def parsed(row: Row, name: str) -> Any:
    """What a text says as JSON."""
    said = text(row, name)
    try:
        return json.loads(said)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{name} is not JSON ({fault})") from None

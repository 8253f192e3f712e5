"""A monitor's look, done to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def to_its_end(rest: Coroutine[Any, Any, None] | None) -> None:
    """rest: what a look has left to be waited for."""
    if rest is not None:
        asyncio.run(rest)

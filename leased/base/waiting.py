"""Waiting for something for so long at most."""

from __future__ import annotations

import asyncio
from typing import Any


async def is_done_within(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait until the future is done, for so many seconds at most. Returns whether it is.

    asyncio.wait_for() would do, but up to Python 3.11 it loses the caller's cancellation if that
    comes at the moment at which the future is done: a task that goes on for ever then never ends.
    """
    done, _ = await asyncio.wait({future}, timeout=seconds)
    return bool(done)

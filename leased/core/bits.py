"""Devices, and other things of which there are sets, as bits of a number."""

from __future__ import annotations

from collections.abc import Iterator


def bits_of(mask: int) -> Iterator[int]:
    """The bits of the mask, one by one, the lowest first."""
    while mask:
        bit = mask & -mask
        mask ^= bit
        yield bit

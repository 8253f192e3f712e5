"""What a record says together with the older file beside it, FILE.1, which it goes on from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from leased.record import place
from leased.record.codec import Damaged
from leased.sim import history, replay
from leased.sim.history import History, Reader

APART = "is left out: the record does not begin where it ends"


def load(path: Path, notes: list[str]) -> History:
    """Damaged: it is no record. OSError: it cannot be read. notes: what else is to be said."""
    with contextlib.ExitStack() as files:
        newer = files.enter_context(path.open("rb"))
        older = _opened(place.before(path), files)
        found = _both(older, newer, place.before(path), notes) if older else None
        return found or history.of(newer, notes)


def _opened(path: Path, files: contextlib.ExitStack) -> BinaryIO | None:
    try:
        return files.enter_context(path.open("rb"))
    except OSError:  # there is none, or it is not this one's
        return None


def _both(older: Iterable[bytes], newer: BinaryIO, name: Path, notes: list[str]) -> History | None:
    """None: they do not belong together, which is noted, and nothing of the newer one is read."""
    said: list[str] = []
    try:
        header, arbiter, steps = replay.begin(older, said)
        reader = Reader(header.written, arbiter)
        for step in steps:
            reader.take(step)
    except Damaged as fault:
        notes.append(f"{name} is left out: {fault}")
        return None
    more = replay.go_on(newer, arbiter, said)
    if more is None:
        notes.append(f"{name} {APART}")
        newer.seek(0)
        return None
    for step in more:
        reader.take(step)
    notes += said
    return reader.finish()

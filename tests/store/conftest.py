"""Stores, one after the other, as daemons open them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.store.registrations import Registrations
from leased.store.store import Store

Begin = Callable[..., Store]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the files of registrations."""
    return tmp_path / "run" / "jobs"


@pytest.fixture
def begin(folder: Path, tmp_path: Path) -> Iterator[Begin]:
    """Open the store of the next daemon, after the one before it is closed. name: of the database.
    files: it keeps registrations in files too."""
    with contextlib.ExitStack() as opened:

        def run(name: str = "usage.db", *, files: bool = False) -> Store:
            opened.close()
            store = Store(tmp_path / name, Registrations(folder) if files else None)
            return opened.enter_context(contextlib.closing(store))

        yield run

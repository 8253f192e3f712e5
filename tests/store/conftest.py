"""Stores, one after the other, as daemons open them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.store.registrations import Registrations
from leased.store.store import Store
from tests.conftest import ROOT

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


def preloaded(source: str, folder: Path, program: str, *arguments: str) -> str:
    """What a Python program prints in which functions of this C file stand for libc's."""
    library = folder / "preloaded.so"
    file = Path(__file__).with_name(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, file, "-ldl"], check=True)
    env = os.environ | {"LD_PRELOAD": str(library)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

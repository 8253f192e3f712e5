"""A daemon that records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased


@pytest.fixture
def path(short_dir: Path) -> Path:
    return short_dir / "record"


@pytest.fixture
def leased(
    short_dir: Path, emulated_gpu: EmulatedGpu, path: Path, request: pytest.FixtureRequest
) -> Iterator[Leased]:
    """gpu-leased that records. Parameter: more of its configuration."""
    env = os.environ | emulated_gpu.env
    extra = f'record = "{path}"\n{getattr(request, "param", "")}'
    with Leased(short_dir / "leased", short_dir / "run", env, extra, preload=CHECKED) as daemon:
        yield daemon

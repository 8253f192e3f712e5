"""A daemon and a keeper of host memory, on an emulated GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import marked
from tests.copies.keeper import Keeper
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased


@pytest.fixture
def keeper(short_dir: Path) -> Iterator[Keeper]:
    with Keeper(short_dir / "run") as keeper:
        yield keeper


@pytest.fixture
def leased(
    short_dir: Path, emulated_gpu: EmulatedGpu, keeper: Keeper, request: pytest.FixtureRequest
) -> Iterator[Leased]:
    """gpu-leased with a keeper. Parameter: its [limits]. Unless they say otherwise no host memory
    is made before it is needed, so that tests know what there is. The mark `daemon` says what else
    Leased is to be told."""
    env = os.environ | emulated_gpu.env
    limits = getattr(request, "param", "")
    limits += "" if "swap_ahead" in limits else '\nswap_ahead = "0%"'
    extra = f"[limits]\n{limits}\n"
    more = {"preload": CHECKED} | marked(request, "daemon")
    with Leased(short_dir / "leased", keeper.path.parent, env, extra, **more) as daemon:
        yield daemon

"""The GPU the demo runs on: an NVIDIA card if there is one, else the emulated GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pynvml

from tests.demo.scenarios import JOBS, REAL_CAP_BYTES
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm


class DemoGpu(Protocol):
    """What the demo needs of either kind of GPU."""

    def describe(self) -> dict[str, Any]: ...

    def cluster(self, prefix: Path) -> contextlib.AbstractContextManager[PrivateSlurm]: ...

    def moved_bytes(self, pids: list[int]) -> int | None: ...

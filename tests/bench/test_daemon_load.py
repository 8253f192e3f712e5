"""The load of the daemon's benchmark says what the daemon understands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.daemon import CONFIG, DEVICES, TARGETS, Bench, Load
from tests.bench.targets import beyond
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until


@pytest.mark.parametrize("name", TARGETS)
def test_a_figure_beyond_its_target_is_named(name: str) -> None:
    assert beyond(TARGETS, TARGETS) == []
    assert beyond({**TARGETS, name: 1.1 * TARGETS[name]}, TARGETS) == [name]


@pytest.mark.skipif(os.geteuid() != 0, reason="its jobs are users of their own")
def test_its_jobs_get_leases_by_turns(short_dir: Path) -> None:
    with (
        EmulatedGpu(short_dir / "gpu", model="emu-a100-tiny", devices=DEVICES) as gpu,
        Leased(short_dir / "leased", short_dir / "run", os.environ | gpu.env, CONFIG) as leased,
        Load(leased) as load,
    ):
        bench = Bench(leased, load, 1, 1)
        load.tell(f"add {2 * DEVICES}")
        bench.set_quantum(0.001)
        load.tell(f"hold 2 {DEVICES}")
        wait_until("turns", lambda: load.tell("count")["leases"] >= 4 * DEVICES)
        load.tell("idle")

"""Memory that leaves for the other GPU by a carrier, and comes back there: a real daemon, real
processes, two emulated GPUs that are peers."""

from __future__ import annotations

import pytest

from leased.cli.exit_status import ExitStatus
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.moving.test_moves import PAIR, PROGRAM, move, works
from tests.slurm.leased import Leased
from tests.support.programs import line, output

pytestmark = pytest.mark.emulated(model="emu-h200-linked", devices=2)
MIB = 1 << 20
SIZE = 96


def by_link(gpu: EmulatedGpu) -> int:
    return sum(device["in_bytes"] + device["out_bytes"] for device in gpu.stats()["devices"])


def test_its_memory_does_not_go_by_the_host(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    job = tenant(1, "tq:1,memory:swap", "-c", PROGRAM, str(SIZE))
    assert line(job) == "ready"
    assert works(job) == "00"
    for gpu in (1, 0):
        before, free = by_link(emulated_gpu), emulated_gpu.stats()["devices"]
        assert move(leased, 1, gpu) == ExitStatus.DONE
        assert by_link(emulated_gpu) - before < SIZE * MIB // 2
        assert works(job) == f"0{gpu}"
        left = emulated_gpu.stats()["devices"]
        assert [d["free"] for d in left] == [d["free"] for d in free[::-1]]
    output(job)

"""A program is saved with its GPU memory, and CRIU, the driver and the interposer restore it in
another job, on another GPU: a real daemon and CRIU, two emulated GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leased.saving.asking import ask_runner
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.saving.test_on_gpu import PROGRAM
from tests.saving.test_runner import needs_criu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

pytestmark = pytest.mark.emulated(model="emu-h200-medium", devices=2)


@needs_criu
def test_a_program_goes_on_in_another_job_on_another_gpu(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, tmp_path: Path
) -> None:
    def free() -> list[int]:
        return [device["free"] for device in emulated_gpu.stats()["devices"]]

    def used() -> list[bool]:
        return [now < before for now, before in zip_strict(free(), whole)]

    whole = free()

    orders, place, out = tmp_path / "orders", tmp_path / "saved", tmp_path / "out"
    orders.mkdir()
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\nexit 0\n")
    scontrol.chmod(0o755)
    socket = str(leased.admin_socket.with_name("tenant.sock"))
    script = PROGRAM.replace("assert os.getppid() == parent", "assert True")
    program = [sys.executable, "-c", script, "96", "4", str(orders)]
    command = ["-m", "leased.cli.ctl", "--socket", socket, "run", "--checkpoint", str(place), "--"]
    shell = 'exec "$0" "$@" >> "$OUT" 2>&1'

    def begin(job: int, gpu: str) -> subprocess.Popen[str]:
        env = {"SLURM_JOB_ID": str(job), "OUT": str(out), "EMUGPU_LETS_GO": "1"}
        env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        run = "import os, sys; os.execvp('sh', ['sh', '-c', *sys.argv[1:]])"
        words = (shell, sys.executable, *command, *program)
        return tenant(job, "tq:1,memory:swap", "-c", run, *words, env=env, gpus=gpu)

    def says(text: str) -> None:
        wait_until(text, lambda: out.exists() and text in out.read_text(), timeout=60)

    first = begin(1, "0")
    says("ready")
    (orders / "0").touch()
    says("right 0")
    assert used() == [True, False]
    told = ask_runner("1", {"directory": str(place), "requeue": True})
    assert told["bytes"] == 160 << 20
    first.wait(60)
    second = begin(2, "1")
    says("goes on from its checkpoint")
    for n in (1, 2, 3):
        (orders / str(n)).touch()
        says(f"right {n}")
        if n < 3:
            assert used() == [False, True]
    assert second.wait(60) == 0
    assert out.read_text().count("ready") == 1

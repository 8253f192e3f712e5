"""A job's GPU memory is saved to files and comes back from them: a real daemon, real processes, an
emulated GPU. In place of CRIU stands a program that fails, or stops the processes as CRIU does."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.saving import bytes_file
from leased.saving.asking import ask_runner
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.children import children_of
from tests.support.programs import CHECK, SET_UP, line

pytestmark = pytest.mark.emulated(model="emu-h200-medium")
JOB = 1
MIB = 1 << 20

# Adds to all of its memory, of which a part is all zeros, for each file that appears.
PROGRAM = (
    SET_UP
    + CHECK
    + """
import time
parent = os.getppid()
n = int(sys.argv[1]) << 18
p, z = ok(d.cuMemAlloc(4 * n)), ok(d.cuMemAlloc(64 << 20))
ok(d.cuMemsetD32(p, 7, n)); ok(d.cuMemsetD32(z, 0, 16 << 20)); ok(d.cuCtxSynchronize())
values = ((int(p), n, 1, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
say("ready")
for turn in range(int(sys.argv[2])):
    while not os.path.exists(f"{sys.argv[3]}/{turn}"):
        time.sleep(0.01)
        assert os.getppid() == parent, "the test has ended"
    ok(d.cuLaunchKernel(kernel["add"], 64, 1, 1, 64, 1, 1, 0, 0, values, 0))
    ok(d.cuCtxSynchronize())
    check(p, n, 8 + turn); check(z, 16 << 20, 0)
    say("right", turn)
"""
)
FAILS = "#!/bin/sh\n[ $1 = check ] && exit 0\nexit 1\n"
STOPS = """#!/bin/sh
[ $1 = check ] && exit 0
kill -STOP $3
"""


class Run:
    """criu: what stands in its place; it STOPS the processes."""

    def __init__(self, tenant: Start, leased: Leased, tmp_path: Path):
        self._orders, self._turn = tmp_path / "orders", 0
        self._orders.mkdir()
        self.place = tmp_path / "saved"
        self.criu = tmp_path / "bin" / "criu"
        self.criu.parent.mkdir()
        self.criu.write_text(STOPS)
        self.criu.chmod(0o755)
        program = [sys.executable, "-c", PROGRAM, "96", "3", str(self._orders)]
        socket = str(leased.admin_socket.with_name("tenant.sock"))
        self.process = tenant(
            JOB,
            "tq:1,memory:swap",
            *("-m", "leased.cli.ctl", "--socket", socket),
            *("run", "--checkpoint", str(self.place), "--", *program),
            env={"PATH": f"{self.criu.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": str(JOB)},
        )
        assert line(self.process) == "ready"

    def works(self) -> None:
        (self._orders / str(self._turn)).touch()
        assert line(self.process) == f"right {self._turn}"
        self._turn += 1

    def save(self) -> dict[str, object]:
        return ask_runner(str(JOB), {"directory": str(self.place), "requeue": False})

    def descriptors(self) -> list[Path]:
        """Of gpu-leasectl."""
        return sorted(Path(f"/proc/{self.process.pid}/fd").iterdir())

    def ends(self) -> None:
        """It works on until it does."""
        while self._turn < 3:
            self.works()
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said


@pytest.fixture
def run(tenant: Start, leased: Leased, tmp_path: Path) -> Run:
    return Run(tenant, leased, tmp_path)


def test_a_job_is_saved_and_goes_on(run: Run) -> None:
    run.works()
    told = run.save()
    assert told["bytes"] == (96 + 64) * MIB
    run.works()
    saved = run.place / "complete"
    manifest = json.loads((saved / "checkpoint.json").read_text())
    (pid,) = (str(pid) for pid, _ in manifest["processes"])
    assert bytes_file.verify(saved, pid).size == told["bytes"]
    files = list(saved.glob(f"{pid}.*.bytes"))
    assert sum(file.stat().st_blocks * 512 for file in files) <= 104 * MIB  # the rest is zeros
    assert not any(path.stat().st_mode & 0o077 for path in (run.place, saved, *files))
    run.ends()
    assert not saved.exists()


def test_no_descriptors_are_left_over(run: Run) -> None:
    """A program that is saved every few minutes is so for weeks."""
    run.save()
    before = run.descriptors()
    for _ in range(2):
        run.save()
    assert run.descriptors() == before
    run.ends()


def test_where_criu_fails_the_job_goes_on_with_all_it_had(run: Run) -> None:
    run.criu.write_text(FAILS)
    run.works()
    with pytest.raises(Refused, match="criu cannot save it"):
        run.save()
    run.ends()


@pytest.mark.parametrize("call", ["lock", "checkpoint"])
def test_where_the_driver_fails_the_job_goes_on_with_all_it_had(
    run: Run, emulated_gpu: EmulatedGpu, call: str
) -> None:
    emulated_gpu.fail(0, call)
    with pytest.raises(Refused, match="OPERATING_SYSTEM"):
        run.save()
    run.ends()


# Waits at first, and then stops the process as CRIU does.
WAITS = """#!/bin/sh
[ $1 = check ] && exit 0
touch "$0.waits"
while [ ! -e "$0.goes" ]; do sleep 0.01; done
kill -STOP $3
"""


def test_a_daemon_that_dies_meanwhile_leaves_the_job_to_the_next_one(
    run: Run, leased: Leased
) -> None:
    run.criu.write_text(WAITS)
    run.works()
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(run.save)
        wait_until("criu to begin", run.criu.with_name("criu.waits").exists)
        leased.kill()
        leased.start()
        run.criu.with_name("criu.goes").touch()
        assert saved.result()["bytes"] == (96 + 64) * MIB
    run.ends()


def test_a_disk_that_is_full_leaves_the_job_all_it_had(run: Run) -> None:
    run.works()
    (runner,) = children_of(run.process.pid)
    resource.prlimit(runner, resource.RLIMIT_FSIZE, (6 * MIB, resource.RLIM_INFINITY))
    with pytest.raises(Refused, match="File too large"):
        run.save()
    assert not (run.place / "complete").exists()
    resource.prlimit(runner, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    run.works()
    assert run.save()["bytes"] == (96 + 64) * MIB
    run.ends()


# The disk loses a byte of the first two blocks of each file.
SPOILS = """#!/bin/sh
[ $1 = check ] && exit 0
for file in "$5"/../*.bytes; do
    for n in 0 1; do
        printf x | dd of="$file" bs=4M seek=$n conv=notrunc 2> "$0.said"
    done
done
exit 1
"""


def test_a_program_whose_memory_cannot_be_read_back_ends_and_its_last_checkpoint_stays(
    run: Run,
) -> None:
    run.works()
    run.save()
    run.criu.write_text(SPOILS)
    with pytest.raises(Refused, match=r"is damaged at byte \d+; it is lost, and its program ends"):
        run.save()
    _, said = run.process.communicate(timeout=60)
    assert run.process.returncode == 128 + signal.SIGKILL, said
    assert (run.place / "complete" / "checkpoint.json").exists()

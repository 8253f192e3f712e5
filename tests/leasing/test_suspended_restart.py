"""A daemon that ends while a job is suspended: the next one lets others work, and the job comes
back with its data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.leasing.test_park import MIB, PROGRAM, free, job_of
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell

MIB_EACH = "16"  # of each job

# Sends SIGTSTP as slurmstepd does: the interposer knows it by its name and user. It asks for them
# when the signal is handled, which on a busy machine is later, so the sender lives on until then.
STEPD = """
import ctypes, os, signal, sys
assert ctypes.CDLL(None).prctl(15, b"slurmstepd", 0, 0, 0) == 0
os.kill(int(sys.argv[1]), signal.SIGTSTP)
sys.stdin.read()
"""


@contextlib.contextmanager
def announced(pid: int) -> Iterator[None]:
    """Slurm is about to stop the process."""
    command = [sys.executable, "-c", STEPD, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as stepd:
        yield
    assert stepd.returncode == 0


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_a_suspended_job_comes_back_under_the_next_daemon(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, memory: str
) -> None:
    options = f"tq:1,lock:on,memory:{memory}"
    job = tenant(1, options, "-c", PROGRAM, MIB_EACH, "2")
    pid = int(line(job))
    before = free(emulated_gpu)
    tell(job)
    assert line(job) == "filled"
    with announced(pid):
        wait_until("it to be parked", lambda: job_of(leased, 1)["parked"] is not None)
    assert job_of(leased, 1)["parked"]["by"] == "Slurm"
    wait_until("all to leave", lambda: free(emulated_gpu) >= before - MIB)
    os.kill(pid, signal.SIGSTOP)
    leased.kill()
    leased.start()
    assert job_of(leased, 1)["clients"] == 0, "it cannot say anything"
    other = tenant(2, options, "-c", PROGRAM, MIB_EACH, "1")
    assert int(line(other))
    tell(other)
    assert line(other) == "filled"
    tell(other)
    assert line(other) == "worked 8"
    output(other)
    os.kill(pid, signal.SIGCONT)
    for turn in (8, 9):
        tell(job)
        assert line(job) == f"worked {turn}"
    assert job_of(leased, 1)["parked"] is None
    output(job)

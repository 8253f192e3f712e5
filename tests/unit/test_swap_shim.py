"""The interposer's half of memory:swap: real bytes on the emulated GPU, under a fake daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.emugpu.server import ROOT, EmulatedGpu
from tests.slurm.leased import PRELOAD
from tests.unit.fake_daemon import Client, FakeDaemon
from tests.unit.test_shim import SET_UP, line, tell

MIB = 1 << 20
TOTAL = 240 * MIB

# Blocks of memory with known words; each line that is read is one step.
PROGRAM = (
    SET_UP
    + """
MIB = 1 << 20
def fill(p, size, value):
    values = ((int(p), size // 4, value), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
    ok(d.cuLaunchKernel(kernel["fill"], 4, 1, 1, 64, 1, 1, 0, 0, values, 0))
def word(value, i):
    return (value + i * 2654435761) % 2**32
def check(p, size, value):
    # Words at both ends, and around every seam of segments.
    seams = range(2 * MIB, size, 2 * MIB)
    for at in sorted({0, size - 4, *seams, *(seam - 4 for seam in seams)}):
        host = bytearray(4)
        ok(d.cuMemcpyDtoH(host, int(p) + at, 4))
        assert int.from_bytes(host, "little") == word(value, at // 4), (hex(int(p)), size, at)
def check_all(p, size, value):
    host = bytearray(size)
    ok(d.cuMemcpyDtoH(host, int(p), size))
    words = memoryview(host).cast("I")
    for i in range(0, size // 4, 997):
        assert words[i] == word(value, i), (hex(int(p)), size, i)
    assert words[-1] == word(value, size // 4 - 1)
def wait():
    assert sys.stdin.readline()
say(os.getpid())
"""
)

Program = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def uuid(emulated_gpu: EmulatedGpu) -> str:
    return str(emulated_gpu.stats()["devices"][0]["uuid"])


@pytest.fixture
def daemon(short_dir: Path, uuid: str) -> Iterator[FakeDaemon]:
    with FakeDaemon(short_dir / "tenant.sock", {uuid: TOTAL}) as fake:
        yield fake


@pytest.fixture
def program(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Program]:
    """Start a program under the interposer; killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        ours = {"LD_PRELOAD": str(PRELOAD), "GPU_LEASE_SOCKET": str(short_dir / "tenant.sock")}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            cwd=ROOT,
            env=os.environ | emulated_gpu.env | ours | {"GPU_LEASE_DEBUG": "1"} | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def client_of(daemon: FakeDaemon, process: subprocess.Popen[str]) -> Client:
    return daemon.client(int(line(process)))


def free_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["free"])


def out_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["out_bytes"])


def finish(process: subprocess.Popen[str]) -> str:
    """To its end; what it said on stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return err


def test_bytes_survive_and_addresses_stay(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
sizes = [100 * MIB, 3 * MIB + 512, 4096, 512, 40 * MIB]
held = [(ok(d.cuMemAlloc(size)), size, n) for n, size in enumerate(sizes)]
for one in held: fill(*one)
ok(d.cuCtxSynchronize())
for turn in range(3):
    say("ready"); wait()
    for one in held: check_all(*one)
    say("checked"); wait()
"""
    )
    client = client_of(daemon, job)
    before = free_bytes(emulated_gpu)
    for _ in range(3):
        assert line(job) == "ready"
        has = client.memory[uuid]
        assert has.resident == has.evictable == (100 + 4 + 2 + 40) * MIB
        daemon.auto = False
        client.revoke()
        client.evict({uuid: has.resident})
        assert free_bytes(emulated_gpu) >= before
        daemon.auto = True
        tell(job)
        client.grant()
        assert line(job) == "checked"
        tell(job)
    finish(job)

"""Programs whose memory is swapped, on the emulated GPU and under a fake daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.emugpu.server import ROOT, EmulatedGpu
from tests.slurm.leased import CHECKED
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import SET_UP, line, tell
from tests.support.together import zip_strict

MIB = 1 << 20

TOTAL = 240 * MIB

KNOWN = 67 * 4096  # bytes by which a device's fingerprints are tried once (fingerprinter.c)

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

# What the program creates and maps itself, in pieces side by side.
VMM = """
prop, access = d.CUmemAllocationProp(), d.CUmemAccessDesc()
prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.location = prop.location
access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
def reserve(size): return int(ok(d.cuMemAddressReserve(size, 0, 0, 0)))
def put(at, handle, size):
    ok(d.cuMemMap(at, size, 0, handle, 0)); ok(d.cuMemSetAccess(at, size, [access], 1))
"""

TWO = """
p = ok(d.cuMemAlloc(160 * MIB)); say("has"); wait()
fill(p, 160 * MIB, VALUE); ok(d.cuCtxSynchronize()); say("filled"); wait()
while True:
    check(p, 160 * MIB, VALUE); say("checked")
    if sys.stdin.readline().strip() == "end": break
"""


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
        ours = {"LD_PRELOAD": str(CHECKED), "GPU_LEASE_SOCKET": str(short_dir / "tenant.sock")}
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
        sys.stderr.write("".join(process.communicate()))  # shown with a failure


def client_of(daemon: FakeDaemon, process: subprocess.Popen[str]) -> Client:
    return daemon.client(int(line(process)))


def revoked(daemon: FakeDaemon, process: subprocess.Popen[str]) -> Client:
    """Wait until the process is ready, and take its lease back."""
    client = client_of(daemon, process)
    assert line(process) == "ready"
    daemon.auto = False
    client.revoke()
    return client


def free_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["free"])


def out_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["out_bytes"])


def in_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["in_bytes"])


def finish(process: subprocess.Popen[str]) -> str:
    """Let it go on to its end, and return what it wrote to stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return err


def two_full(
    program: Program, daemon: FakeDaemon, uuid: str
) -> tuple[list[subprocess.Popen[str]], list[Client]]:
    """Two processes of 160 MiB on a device of 256: the second is there, the first away."""
    daemon.auto = False
    jobs = [program(f"VALUE = {n}" + TWO) for n in (1, 2)]
    clients = [client_of(daemon, job) for job in jobs]
    for job, client in zip_strict(jobs, clients):
        assert line(job) == "has"
        client.grant()
        tell(job)
        assert line(job) == "filled"
        client.revoke()
        if client is clients[0]:
            client.evict({uuid: 1 << 40})
    return jobs, clients


def end(job: subprocess.Popen[str]) -> None:
    assert job.stdin is not None
    job.stdin.write("end\n")
    job.stdin.flush()

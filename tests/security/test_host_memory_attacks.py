"""A hostile job at the node's host memory for copies: by another user, without the interposer,
against the real daemon and its keeper, beside honest jobs on another emulated GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.conftest import Start
from tests.connections.test_limits import HELLO
from tests.copies.keeper import Keeper
from tests.copies.node import SWAP, end, started, status, turn
from tests.emugpu.server import EmulatedGpu
from tests.security.test_memory_attacks import memory
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell

HONEST, OTHER, HOSTILE = 1, 2, 8
HOSTS_GPU = "1"  # the hostile job's

# What a process of the hostile job begins with. argv: a HELLO, then what it may send.
USER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
HELLO, *SAYS = map(bytes.fromhex, sys.argv[1:])
def connect():
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(60)
    sock.connect(os.environ["GPU_LEASE_SOCKET"])
    sock.send(HELLO); sock.recv(1024)
    return sock
def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture
def emulated_gpu(short_dir: Path) -> Iterator[EmulatedGpu]:
    """Two GPUs: one of the honest jobs, one of the hostile one."""
    with EmulatedGpu(short_dir / "gpu", devices=2) as gpus:
        yield gpus


@pytest.fixture
def keeper(short_dir: Path) -> Iterator[Keeper]:
    with Keeper(short_dir / "run") as keeper:
        yield keeper


@pytest.fixture
def leased(
    short_dir: Path, emulated_gpu: EmulatedGpu, keeper: Keeper, request: pytest.FixtureRequest
) -> Iterator[Leased]:
    """Parameter: limits.swap_host."""
    if os.getuid():
        pytest.skip("to be another user takes root")
    limits = f'[limits]\nswap_ahead = "0%"\nswap_host = "{getattr(request, "param", "512MiB")}"\n'
    env, run_dir = os.environ | emulated_gpu.env, keeper.path.parent
    with Leased(short_dir / "leased", run_dir, env, limits, preload=CHECKED) as daemon:
        yield daemon


def hostile(tenant: Start, code: str, *says: bytes, mem: str = "") -> subprocess.Popen[str]:
    sent = [text.hex() for text in (HELLO, *says)]
    return tenant(HOSTILE, SWAP + mem, "-c", USER + code, *sent, gpus=HOSTS_GPU)


def claim(uuid: str, size: int) -> bytes:
    made = header.new(lib.GL_CLAIM)
    made.number, made.bytes, made.least = 1, size, 1
    ffi.buffer(made.uuid)[:] = uuid_bytes(uuid)
    return bytes(ffi.buffer(made))


def left(leased: Leased) -> int:
    return int(status(leased)["copies"]["left_bytes"])


# It says all on each of many connections, of which the job has as many as the daemon lets it.
SAYS = """
socks = [connect() for _ in range(40)]
for sock in socks:
    for text in SAYS:
        sock.send(text)
say("said")
sys.stdin.readline()
"""


@pytest.mark.parametrize("leased", ["300MiB"], indirect=True)
@pytest.mark.parametrize("what", ["has", "claims"])
def test_words_take_no_host_memory_from_jobs_on_other_gpus(
    tenant: Start, leased: Leased, what: str
) -> None:
    """Two jobs that do not fit together need nearly all that is left beside what the hostile one
    could need, if it had all of its GPU."""
    uuid = status(leased)["devices"][1]["uuid"]
    says = {"has": memory(uuid, 16 << 40, 0, 16 << 40), "claims": claim(uuid, 1 << 30)}[what]
    liar = hostile(tenant, SAYS, says, mem=",mem:64MiB")
    assert line(liar) == "said"
    wait_until("all of them", lambda: _clients(leased) == 40)
    (first, _), (second, _) = started(tenant, HONEST), started(tenant, OTHER)
    assert left(leased) > 0
    assert [turn(job) for job in (first, second)] == [1, 1]
    for job in (first, second):
        end(job)
    assert liar.poll() is None, "it says so still"
    tell(liar)
    output(liar)


def _clients(leased: Leased) -> int:
    return sum(int(one["clients"]) for one in status(leased)["tenants"])

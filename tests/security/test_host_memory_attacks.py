"""A hostile job at the node's host memory for copies: by another user, without the interposer,
against the real daemon and its keeper, beside honest jobs on another emulated GPU."""

from __future__ import annotations

import os
import resource
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


class AsItsUnit(Leased):
    """Without the capabilities that its unit does not leave it, by one of which it could have any
    number of descriptors on their way."""

    def _command(self) -> list[str]:
        return ["setpriv", "--bounding-set=-sys_resource,-sys_admin", *super()._command()]


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
    with AsItsUnit(short_dir / "leased", run_dir, env, limits, preload=CHECKED) as daemon:
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


# Each of its connections has a name, asks to meet the next one again and again, and reads nothing.
# It goes on when all has been answered, or its connections are closed.
MEETS = """
import fcntl, select, struct, termios, time
name, meet, answer = SAYS[0], SAYS[1], int.from_bytes(SAYS[2], "little")
def named(text, n):
    return text.replace(b"NAME" * 4, n.to_bytes(16, "little"))
def answered(sock):
    if select.select([sock], [], [], 0)[0]:
        has = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]
        ended = select.poll(); ended.register(sock, 0)
        return has >= TIMES * answer or bool(ended.poll(0))
    return False
N, TIMES = 60, 20
socks = [connect() for _ in range(N)]
for n, sock in enumerate(socks):
    sock.send(named(name, n + 1))
for time_ in range(TIMES):
    for n, sock in enumerate(socks):
        try: sock.send(named(meet, (n + 1) % N + 1))
        except OSError: pass
while not all(map(answered, socks)):
    time.sleep(0.01)
say("answered")
sys.stdin.readline()
"""
FILES = 1024  # that the daemon may have open; less than what the hostile job asks for


def test_descriptors_that_nobody_reads_keep_no_other_job_from_its_memory(
    tenant: Start, leased: Leased
) -> None:
    name, meet = header.new(lib.GL_NAME), header.new(lib.GL_MEET)
    name.name = meet.name = b"NAME" * 4
    size = ffi.sizeof("struct gl_met").to_bytes(2, "little")
    says = bytes(ffi.buffer(name)), bytes(ffi.buffer(meet)), size
    (first, _), (second, _) = started(tenant, HONEST), started(tenant, OTHER)
    assert leased.daemon
    resource.prlimit(leased.daemon.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    silent = hostile(tenant, MEETS, *says)
    assert line(silent) == "answered"
    assert [turn(job) for job in (first, second, first, second)] == [1, 1, 2, 2]
    assert "is dropped" not in leased.log.read_text()
    for job in (first, second):
        end(job)
    tell(silent)
    output(silent)


def _clients(leased: Leased) -> int:
    return sum(int(one["clients"]) for one in status(leased)["tenants"])

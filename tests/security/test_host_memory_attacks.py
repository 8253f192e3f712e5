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

from leased.copies.unfreed import NOISE, SLACK
from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.conftest import Start
from tests.connections.test_limits import HELLO
from tests.copies.keeper import Keeper
from tests.copies.node import MIB, SWAP, end, started, status, turn
from tests.emugpu.server import EmulatedGpu
from tests.security.test_memory_attacks import memory
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.cgroups import memory_cgroup
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


# Two GPUs: one of the honest jobs, one of the hostile one.
pytestmark = pytest.mark.emulated(devices=2)


@pytest.fixture
def keeper(short_dir: Path) -> Iterator[Keeper]:
    """Alone in a cgroup that charges as much as there is."""
    with memory_cgroup(1 << 20) as group, Keeper(short_dir / "run", group) as keeper:
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


def hostile(
    tenant: Start, code: str, *says: bytes, mem: str = "", job: int = HOSTILE
) -> subprocess.Popen[str]:
    sent = [text.hex() for text in (HELLO, *says)]
    options, env = SWAP + mem, {"JOB_UID": "65534"}
    return tenant(job, options, "-c", USER + code, *sent, gpus=HOSTS_GPU, env=env)


def claim(uuid: str, size: int) -> bytes:
    made = header.new(lib.GL_CLAIM)
    made.number, made.bytes, made.least = 1, size, 1
    ffi.buffer(made.uuid)[:] = uuid_bytes(uuid)
    return bytes(ffi.buffer(made))


def left(leased: Leased) -> int:
    return int(status(leased)["copies"]["left_bytes"])


def is_known(leased: Leased, gpu: EmulatedGpu) -> bool:
    """The daemon has seen what the contexts on the first GPU take, of which the rest follows."""
    known, free = status(leased)["devices"][0], gpu.stats()["devices"][0]["free"]
    used = known["memory_bytes"] - free - known["resident_bytes"]
    return bool(known["overhead_bytes"] == used)


def unfreed(leased: Leased) -> int:
    return int(status(leased)["copies"]["unfreed_bytes"])


# It says all on each of many connections, of which the job has as many as the daemon lets it.
SAYS = """
socks = [connect() for _ in range(200)]
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
    wait_until("all of them", lambda: _clients(leased) == 200)
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


# It takes memory, writes it, and puts its pages into sockets that nobody reads. What is not refused
# is given back: by the process, which goes on, or by its end. In holes it has the kernel take the
# pages out of the file itself, and fills that again.
SPLICES = """
import ctypes, fcntl, mmap, resource
from _gpulease import ffi, lib
from leased.wire import header
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def ask(sock, kind, **fields):
    made = header.new(kind)
    for name, value in fields.items(): setattr(made, name, value)
    sock.send(bytes(ffi.buffer(made)))
    data, descriptors, _, _ = socket.recv_fds(sock, 1024, 1)
    return ffi.from_buffer("struct gl_host_answer *", data).code, descriptors
def keep(descriptor, pairs):
    at, (read, write) = 0, os.pipe()
    while at < SIZE:
        left = os.splice(descriptor, write, 1 << 16, offset_src=at)
        at += left
        while left:
            try: left -= os.splice(read, pairs[-1][0].fileno(), left, flags=2)
            except BlockingIOError: pairs.pop()
    os.close(read); os.close(write)
def write(descriptor):
    with mmap.mmap(descriptor, SIZE) as memory:
        for at in range(0, SIZE, 4096): memory[at] = 1
HOW, SIZE = SAYS[0].decode(), 8 << 20
def take(sock, number):
    pairs = [socket.socketpair() for _ in range(48)]
    for pair in pairs: pair[0].setblocking(False)
    kept.extend(pairs)
    if HOW == "ends" and (child := os.fork()):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if HOW == "ends": sock = connect()
    code, descriptors = ask(sock, lib.GL_HOST_TAKE, number=number, bytes=SIZE)
    if code == lib.GL_HOST_TAKEN:
        write(descriptors[0]); keep(descriptors[0], list(pairs))
        if HOW == "holes":
            whole = ctypes.c_int64(0), ctypes.c_int64(SIZE)
            assert not ctypes.CDLL(None).fallocate(descriptors[0], 3, *whole)
            write(descriptors[0])
        os.close(descriptors[0])
    if HOW == "ends": os._exit(code != lib.GL_HOST_TAKEN)
    ask(sock, lib.GL_HOST_GIVE, number=number)
    return code == lib.GL_HOST_TAKEN
sock, kept = connect(), []
for number in range(25):
    if not take(sock, number): break
say(number)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["gives", "ends", "holes"])
def test_pages_that_something_still_refers_to_stay_charged(
    tenant: Start, leased: Leased, keeper: Keeper, emulated_gpu: EmulatedGpu, how: str
) -> None:
    """The job has 64 MiB of its GPU, and so many of host memory and a little. It gets no more than
    that from then on, and what is not free counts for the node, until it is."""
    assert keeper.group
    (first, _), (second, _) = started(tenant, HONEST), started(tenant, OTHER)
    wait_until("the first GPU to be known", lambda: is_known(leased, emulated_gpu))
    before = left(leased)
    greedy = hostile(tenant, SPLICES, how.encode(), mem=",mem:64MiB")
    got = int(line(greedy))
    assert 8 <= got < 16, "pieces of 8 MiB"
    least = got * 8 * MIB - SLACK - NOISE
    wait_until("the last to be seen", lambda: unfreed(leased) >= least)
    assert unfreed(leased) <= got * 8 * MIB + NOISE
    assert left(leased) <= before - least
    assert [turn(job) for job in (first, second)] == [1, 1]
    again = hostile(tenant, SPLICES, how.encode(), mem=",mem:64MiB", job=HOSTILE + 1)
    assert got + int(line(again)) < 16, "nor does another job of its user get more"
    for job in (greedy, again):
        tell(job)
        output(job)
    wait_until("all to be free", lambda: unfreed(leased) == 0)
    for job in (first, second):
        end(job)
    assert f"job {HOSTILE}: " in leased.log.read_text()
    assert f"job {HONEST}: " not in leased.log.read_text()


def _clients(leased: Leased) -> int:
    return sum(int(one["clients"]) for one in status(leased)["tenants"])

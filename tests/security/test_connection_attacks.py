"""Connections of users against the real daemon: many of them, and those kept over a restart."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.connections import limits
from leased.wire import header
from tests.connections.test_limits import HELLO, sockets_to
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.tenant import register

ODD_NAME = """
import ctypes, os, resource, socket, sys
ctypes.CDLL(None).prctl(15, b"\\xff\\r0::/", 0, 0, 0)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]) + 64,) * 2)
socks = []
for _ in range(int(sys.argv[2])):
    socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    socks[-1].connect(sys.argv[1])
    socks[-1].send(bytes.fromhex(sys.argv[3]))
print("connected", flush=True)
sys.stdin.readline()
"""
MANY = 4_000  # many times what is kept of them, and lines if each made one


@contextlib.contextmanager
def odd_clients(leased: Leased, number: int, user: str | None) -> Iterator[subprocess.Popen[str]]:
    """A process whose name is no UTF-8, and its connections, each with a HELLO."""
    process = subprocess.Popen(
        [
            *("/usr/bin/python3", "-c", ODD_NAME, str(leased.run_dir / "tenant.sock")),
            *(str(number), HELLO.hex()),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def descriptors(leased: Leased) -> int:
    assert leased.daemon is not None
    return len(list(Path(f"/proc/{leased.daemon.process.pid}/fd").iterdir()))


def test_many_connections_of_a_user_without_a_job(leased: Leased) -> None:
    if os.getuid() != 0:
        pytest.skip("another user's processes need root")
    before, lines = descriptors(leased), leased.log.read_bytes().count(b"\n")
    with odd_clients(leased, MANY, "nobody") as process:
        with sockets_to(leased) as sock:  # behind all of them: so those are accepted
            sock.send(HELLO)
            assert len(sock.recv(1024)) == ffi.sizeof("struct gl_refused")
        assert descriptors(leased) <= before + limits.UNHEARD_PER_UID + 8
        up = ask(leased.admin_socket, {"op": "status"})["uptime_s"]
        said = leased.log.read_bytes().count(b"\n") - lines
        # Of that user, of root's one and of what the daemon has to say itself.
        assert said <= 2 * (limits.LINES_BURST + limits.LINES_PER_S * up)
        assert b"Traceback" not in leased.log.read_bytes()
        process.kill()
    wait_until("the daemon to be rid of them", lambda: descriptors(leased) <= before)


AGAIN = """
import os, socket, sys
for _ in range(int(sys.argv[2]) - 1):
    if os.fork() == 0:
        break
os.write(1, b"begins\\n")
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(sys.argv[1])
"""


def test_who_asks_while_another_user_connects_without_end_is_answered(leased: Leased) -> None:
    path = leased.run_dir / "tenant.sock"
    flood = subprocess.Popen(
        ["/usr/bin/python3", "-c", AGAIN, str(path), "8"],
        stdout=subprocess.PIPE,
        text=True,
        user="nobody",
        start_new_session=True,
    )
    try:
        for _ in range(8):
            assert line(flood) == "begins"
        for _ in range(20):
            assert ask(path, {"op": "mine"}, 60) == {"jobs": [], "more": 0}
    finally:
        os.killpg(flood.pid, signal.SIGKILL)
        flood.communicate()


KEPT = """
import ctypes, os, socket, sys
ctypes.CDLL(None).prctl(15, b"\\xff\\r0::/", 0, 0, 0)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
print("connected", flush=True)
print(sock.recv(1024).hex(), flush=True)
sock.send(bytes.fromhex(sys.argv[2]))
print(sock.recv(1024).hex(), flush=True)
sys.stdin.readline()
"""


def test_a_daemon_starts_whatever_it_has_kept(short_dir: Path, emulated_gpu: EmulatedGpu) -> None:
    env = os.environ | emulated_gpu.env
    leased = Leased(short_dir / "leased", short_dir / "run", env, activated=True)
    no_socket = (short_dir / "file").open("wb")
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client = None
    try:
        leased.start()
        register(leased.admin_socket, 7)
        leased.stop()
        client = subprocess.Popen(
            ["/usr/bin/python3", "-c", KEPT, str(leased.run_dir / "tenant.sock"), HELLO.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert line(client) == "connected"
        connection, _ = leased.sockets["tenant"].accept()
        with connection:
            given = (no_socket, datagrams, connection)
            leased.kept = [file.fileno() for file in given]
            leased.start()  # raises unless it becomes ready
        leased.kept = []
        assert header.check_header(bytes.fromhex(line(client))) == lib.GL_RESYNC
        assert header.check_header(bytes.fromhex(line(client))) == lib.GL_WELCOME
        (tenant,) = ask(leased.admin_socket, {"op": "status"})["tenants"]
        assert (tenant["job_id"], tenant["clients"]) == (7, 1)
    finally:
        if client is not None:
            client.kill()
            client.communicate()
        leased.stop()
        no_socket.close()
        for held in (*leased.sockets.values(), datagrams):
            held.close()

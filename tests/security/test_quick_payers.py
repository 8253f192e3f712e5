"""A user's many numbers: processes in user namespaces, and who pays for what they send."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.processes import charged_user
from leased.processes.charged_user import ENDED, payer_of
from leased.processes.identity import peer_of
from tests.support.together import zip_strict

FIRST = 100_000  # of the numbers that the user has besides
NUMBERS = 8
# In a user namespace, a process for each number; then each makes one more namespace inside.
CONNECT = f"""
import ctypes, os, socket, sys

def unshare():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000):
        print(os.strerror(ctypes.get_errno()), flush=True)
        sys.exit(1)

def connect():
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    return sock

if sys.argv[2] != "none":
    unshare()
print("ready", flush=True)
sys.stdin.readline()
for number in range({NUMBERS}):
    if os.fork() == 0:
        if sys.argv[2] != "none":
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
        if sys.argv[2] == "nested":
            unshare()
        kept = connect()
        if sys.argv[2] != "ended":
            sys.stdin.read()
        os._exit(0)
if sys.argv[2] == "ended":
    for number in range({NUMBERS}):
        os.wait()
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listening(short_dir: Path) -> Iterator[socket.socket]:
    if os.geteuid():
        pytest.skip("to give a process numbers of another user takes root")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(short_dir / "sock"))
        (short_dir / "sock").chmod(0o666)
        sock.listen(NUMBERS)
        sock.settimeout(30)
        yield sock


@contextlib.contextmanager
def attacker(listening: socket.socket, user: str, how: str) -> Iterator[list[socket.socket]]:
    """The connections of NUMBERS processes, each of a number of its own in a user namespace."""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", CONNECT, listening.getsockname(), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
    )
    assert process.stdin
    assert process.stdout
    accepted: list[socket.socket] = []
    try:
        said = process.stdout.readline()
        if said != "ready\n":
            pytest.skip(f"{user} may make no user namespace here: {said}")
        if how != "none":
            for ids in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{ids}").write_text(f"0 {FIRST} 65536\n")
        print("go", file=process.stdin, flush=True)
        assert process.stdout.readline() == "connected\n"
        accepted += [listening.accept()[0] for _ in range(NUMBERS)]
        yield accepted
    finally:
        for sock in accepted:
            sock.close()
        process.stdin.close()  # its children read the same
        process.wait(60)
        process.stdout.close()


def payers_of(socks: list[socket.socket]) -> set[int]:
    peers = [peer_of(sock) for sock in socks]
    return {payer_of(sock, peer) for sock, peer in zip_strict(socks, peers)}


@pytest.mark.parametrize("how", ["flat", "nested"])
def test_numbers_of_a_user_namespace_are_its_makers(listening: socket.socket, how: str) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    with attacker(listening, "nobody", how) as socks:
        assert {peer_of(sock).uid for sock in socks} == set(range(FIRST, FIRST + NUMBERS))
        assert payers_of(socks) == {nobody}


def test_a_namespace_of_roots_is_one_payer_and_never_root(listening: socket.socket) -> None:
    with attacker(listening, "root", "flat") as socks:
        (payer,) = payers_of(socks)
        assert payer < min(charged_user.NOBODY, ENDED)


def test_outside_of_namespaces_a_user_is_itself(listening: socket.socket) -> None:
    with attacker(listening, "nobody", "none") as socks:
        assert payers_of(socks) == {pwd.getpwnam("nobody").pw_uid}


def test_ended_connections_are_charged_together(listening: socket.socket) -> None:
    with attacker(listening, "nobody", "ended") as socks:
        assert payers_of(socks) == {ENDED}


def test_a_daemon_that_may_not_look_counts_each_number(listening: socket.socket) -> None:
    look = """
import sys
from leased.processes.identity import peer_of
from leased.processes.charged_user import payer_of
import socket
sock = socket.socket(fileno=int(sys.argv[1]))
peer = peer_of(sock)
print(peer.uid, payer_of(sock, peer))
"""
    with attacker(listening, "nobody", "flat") as socks:
        fd = socks[0].fileno()
        said = subprocess.run(
            [sys.executable, "-c", look, str(fd)],
            pass_fds=[fd],
            user="daemon",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        uid, payer = said.split()
        assert int(uid) >= FIRST
        assert payer == uid

"""Processes, connections and kept descriptors at fault while eight jobs run, and at a start."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connections.test_limits import HELLO
from tests.fault.harness import FaultyNode

# Names that once were taken for what /proc says itself, or could not be read at all.
NAMES = {
    "no UTF-8": b"\xff\xfe",
    "a line of its own": b"a\rUid:\t0",
    "parentheses": b") R 1 (",
    "a separator": b"x\x1c0::/",
}
CLIENT = """
import ctypes, os, socket, sys
ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0)
socks = []
for message in sys.argv[3:]:
    socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    socks[-1].connect(sys.argv[2])
    socks[-1].send(bytes.fromhex(message))
print("sent", flush=True)
sys.stdin.readline()
"""
GARBAGE = (b"\xff", b"\x00" * 16, bytes(range(256)) * 3, HELLO[:-1], HELLO + HELLO)


@contextlib.contextmanager
def client(node: FaultyNode, name: bytes) -> Iterator[None]:
    """A process of that name and of no job, which says HELLO and sends garbage."""
    messages = [message.hex() for message in (HELLO, *GARBAGE)]
    target = str(node.leased.run_dir / "tenant.sock")
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, os.fsdecode(name), target, *messages],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_process_of_any_name_that_sends_garbage(node: FaultyNode, name: bytes) -> None:
    with client(node, name):
        with node.everybody_goes_on():
            pass
        # The name is there at a start as well.
        with node.everybody_goes_on():
            node.restart()


def test_kept_descriptors_that_are_none_of_ours(node: FaultyNode, short_dir: Path) -> None:
    """systemd hands over whatever lies in its store under our name."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    gone, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.close()
    listens = socket.socket(socket.AF_INET)
    reads, writes = os.pipe()
    with contextlib.ExitStack() as stack:
        for held in (ours, theirs, gone, listens):
            stack.enter_context(held)
        for number in (reads, writes):
            stack.callback(os.close, number)
        file = stack.enter_context((short_dir / "file").open("wb"))
        kept = [ours.fileno(), gone.fileno(), listens.fileno(), reads, writes, file.fileno()]
        node.leased.kept = kept
        with node.everybody_goes_on():
            node.restart()
        node.leased.kept = []
    assert node.said("kept of the previous daemon: ") <= 1

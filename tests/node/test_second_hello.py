"""Connections that outlive a daemon, on which a client says HELLO more than once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _gpulease import ffi, lib

from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.fuzz.node import GB, UUIDS, Node, Peers, quiet

JOB = 1
SWAPS = 8  # as Node.open() takes it
HELLO = bytes(ffi.buffer(header.new(lib.GL_HELLO)))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def claim(uuid: str) -> bytes:
    message = header.new(lib.GL_CLAIM)
    message.number, message.bytes, message.least = 1, 10 * GB, 10 * GB
    ffi.buffer(message.uuid)[:] = uuid_bytes(uuid)
    return bytes(ffi.buffer(message))


def details(uuid: str) -> bytes:
    message = header.new(lib.GL_DETAILS)
    ffi.buffer(message.uuid)[:] = uuid_bytes(uuid)
    return bytes(ffi.buffer(message))


@pytest.fixture
def node() -> Node:
    node = Node()
    node.open(JOB, 0, SWAPS, 10**9)
    return node


def kept(node: Node) -> Peers:
    """A client of the previous daemon that has come back, and claims memory."""
    peer = node.connect(JOB, root=False)
    assert peer
    node.send(peer, HELLO)
    node.restart()
    for said in (HELLO, claim(UUIDS[0]), details(UUIDS[0])):
        node.send(peer, said)
    return peer


def test_a_client_that_is_refused_the_second_time_claims_nothing(node: Node) -> None:
    """The process has ended and its child, which has the connection too, goes on with it."""
    peer = kept(node)
    peer.sock.gone = True
    node.send(peer, HELLO)
    assert not peer.sock.open
    node.close_job(JOB)
    node.check()
    node.end()


def test_a_client_takes_nothing_into_the_next_run_of_its_job(node: Node) -> None:
    """The job is requeued, and has another GPU, while a process of it has not ended."""
    peer = kept(node)
    node.close_job(JOB)
    node.open(JOB, 1, SWAPS, 10**9)
    node.send(peer, HELLO)
    (client,) = node.leases.tenants[JOB].clients
    assert not client.details
    assert node.leases.claims
    assert not node.leases.claims.claims.granted
    node.check()
    node.end()


def test_a_client_holds_nothing_in_the_next_run_of_its_job(node: Node) -> None:
    peer = kept(node)
    node.pass_time(2)
    node.send(peer, bytes(ffi.buffer(header.new(lib.GL_REQUEST))))
    (client,) = node.leases.tenants[JOB].clients
    assert client.held
    node.close_job(JOB)
    node.open(JOB, 1, SWAPS, 10**9)
    node.send(peer, HELLO)
    assert not client.held
    node.send(peer, bytes(ffi.buffer(header.new(lib.GL_REQUEST))))
    assert client.held == node.leases.view.tenant(JOB).epoch > 0
    node.end()

"""What the daemon tells a holder that gets back what others displaced: by a message of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _gpulease import ffi, lib

from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.fuzz.node import GB, UUIDS, Node, Peers, quiet

AUTO = 1  # of the fuzzer's locks


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def client(node: Node, job: int, size: int) -> Peers:
    """A process of a job with lock:auto on one device that has so much memory and its lease."""
    node.open(job, 0, AUTO, 10**9)
    peer = node.connect(job)
    assert peer
    hello = header.new(lib.GL_HELLO)
    hello.flags, hello.n_devices = lib.GL_HELLO_WANTS, 1
    ffi.buffer(hello.devices[0].uuid)[:] = uuid_bytes(UUIDS[0])
    hello.devices[0].bytes = size
    node.send(peer, bytes(ffi.buffer(hello)))
    return peer


def grow(node: Node, peer: Peers, size: int) -> None:
    memory = header.new(lib.GL_MEMORY)
    memory.n_devices = 1
    ffi.buffer(memory.devices[0].uuid)[:] = uuid_bytes(UUIDS[0])
    memory.devices[0].bytes = size
    node.send(peer, bytes(ffi.buffer(memory)))


def release(node: Node, peer: Peers) -> None:
    released = header.new(lib.GL_RELEASED)
    released.epoch, released.flags = peer.epoch, lib.GL_RELEASED_WANTS
    node.send(peer, bytes(ffi.buffer(released)))


def heard(peer: Peers, node: Node) -> list[int]:
    """The types of what it is told now."""
    kinds = [header.check_header(data) for data in peer.sock.outbox]
    peer.deaf = False
    node.listen_to()
    return kinds


def separated() -> tuple[Node, Peers, Peers]:
    """Two jobs ran side by side; their memory does not fit any more, and the second releases."""
    node = Node()
    first, second = client(node, 1, 40 * GB), client(node, 2, 40 * GB)
    assert len(node.leases.loop.arbiter.rules.holders(UUIDS[0])) == 2
    grow(node, second, 80 * GB)
    assert second.revoked
    first.deaf = True
    release(node, second)
    return node, first, second


def test_a_holder_hears_no_grant_of_the_lease_that_it_has() -> None:
    node, first, _ = separated()
    kinds = heard(first, node)
    assert lib.GL_RESTORE in kinds
    assert lib.GL_GRANT not in kinds


def test_a_message_on_its_way_does_not_grant_again_to_a_process_that_released() -> None:
    """Its release crosses the daemon's word: the device is the other's, and nobody else's."""
    node, first, second = separated()
    before = first.epoch
    release(node, first)
    assert [t.id for t in node.leases.loop.arbiter.rules.holders(UUIDS[0])] == [2]
    assert lib.GL_GRANT not in heard(first, node)
    assert first.epoch == before
    assert second.epoch > before

"""The fuzzing targets on kept inputs and on generated ones, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from _gpulease import ffi

from leased.wire import header
from tests.fuzz.node import Node, quiet
from tests.fuzz.proc import proc_target
from tests.fuzz.reader import Reader
from tests.fuzz.targets import FRAME, AdminNode, admin_target, fill_any, wire_target
from tests.support.message_types import OF_CLIENTS

CORPUS = Path(__file__).parent / "data"
# A part of the generated inputs is a test of its own, so that each has pytest's time for itself.
PARTS = range(4)
INPUTS_OF_CLIENTS, MESSAGES_OF_CLIENTS = 50, 5_000  # in a part, and the fewest that come of them
INPUTS_OF_ADMINS, REQUESTS_OF_ADMINS = 30, 200


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def kept(name: str) -> list[bytes]:
    found = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert found
    return found


def test_kept_inputs_of_clients() -> None:
    assert sum(map(wire_target, kept("wire"))) > 1000


def test_every_field_of_every_message_is_fuzzed() -> None:
    source = random.Random(23)
    node = Node()
    node.open(1, 0, 0, 10**9)
    peer = node.connect(1)
    assert peer
    for row in OF_CLIENTS:
        never = set(dict(ffi.typeof(f"struct {row.body}").fields)) - FRAME
        for _ in range(200):
            made = header.new(row.number)
            fill_any(Reader(source.randbytes(200)), node, peer, made)
            never -= {name for name in never if getattr(made, name)}
        assert not never, f"{row.name}: {never}"


@pytest.fixture
def admin_node(tmp_path: Path) -> Iterator[AdminNode]:
    node = AdminNode(tmp_path)
    yield node
    node.store.close()


def test_kept_requests_break_nothing(admin_node: AdminNode) -> None:
    assert sum(admin_target(data, admin_node) for data in kept("admin")) > 100


def generated(seed: int, inputs: int, longest: int) -> Iterator[bytes]:
    source = random.Random(seed)
    return (source.randbytes(source.randint(1, longest)) for _ in range(inputs))


@pytest.mark.parametrize("part", PARTS)
def test_generated_messages_of_clients(part: int) -> None:
    inputs = generated(200 + part, INPUTS_OF_CLIENTS, 6000)
    assert sum(map(wire_target, inputs)) > MESSAGES_OF_CLIENTS


@pytest.mark.parametrize("part", PARTS)
def test_generated_requests(admin_node: AdminNode, part: int) -> None:
    inputs = generated(210 + part, INPUTS_OF_ADMINS, 600)
    assert sum(admin_target(data, admin_node) for data in inputs) > REQUESTS_OF_ADMINS


def test_kept_processes_break_nothing(tmp_path: Path) -> None:
    assert sum(proc_target(data, tmp_path / "proc") for data in kept("proc")) > 100


def test_generated_processes(tmp_path: Path) -> None:
    source = random.Random(22)
    for _ in range(25):
        proc_target(source.randbytes(source.randint(1, 600)), tmp_path / "proc")

"""The fuzzing targets on kept inputs and on generated ones, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.node import quiet
from tests.fuzz.proc import proc_target
from tests.fuzz.targets import AdminNode, admin_target, wire_target

CORPUS = Path(__file__).parent / "corpus"
MESSAGES = 100_000


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


def test_kept_requests(tmp_path: Path) -> None:
    node = AdminNode(tmp_path)
    assert sum(admin_target(data, node) for data in kept("admin")) > 100


def test_generated_messages_of_clients() -> None:
    source = random.Random(20)
    sent = 0
    while sent < MESSAGES:
        sent += wire_target(source.randbytes(source.randint(1, 6000)))


def test_generated_requests(tmp_path: Path) -> None:
    source = random.Random(21)
    node = AdminNode(tmp_path)
    sent = 0
    while sent < MESSAGES // 20:
        sent += admin_target(source.randbytes(source.randint(1, 600)), node)


def test_kept_processes(tmp_path: Path) -> None:
    assert sum(proc_target(data, tmp_path / "proc") for data in kept("proc")) > 100


def test_generated_processes(tmp_path: Path) -> None:
    source = random.Random(22)
    for _ in range(60):
        proc_target(source.randbytes(source.randint(1, 600)), tmp_path / "proc")

"""One container for all tests of the units."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.systemd.container import Container, why_not
from tests.systemd.node import Node


@pytest.fixture(scope="package")
def booted() -> Iterator[Node]:
    """A node that has everything. Skipped, with the reason, where none can be booted."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Container() as container:
        node = Node(container)
        node.set_up()
        yield node


@pytest.fixture
def node(booted: Node) -> Iterator[Node]:
    """The node; afterwards it is as it was."""
    yield booted
    booted.reset()

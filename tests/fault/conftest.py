"""The node that the tests of this folder break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.harness import FaultyNode, faulty_node


@pytest.fixture
def node(short_dir: Path) -> Iterator[FaultyNode]:
    """Eight jobs that are granted in turns."""
    with faulty_node(short_dir) as made:
        made.begin()
        yield made

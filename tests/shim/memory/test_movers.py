"""Memory that leaves and comes back, and the store of what has left, with shim/memory alone."""

from __future__ import annotations

import pytest

from tests.shim.memory.cases import cases, run

PROGRAM = "memory_movers"


def test_there_are_cases() -> None:
    assert cases(PROGRAM)


@pytest.mark.parametrize("case", cases(PROGRAM))
def test_a_mover_keeps_its_contract(case: str) -> None:
    run(PROGRAM, case)

"""What every kind of device memory promises, each case in a process with shim/memory alone."""

from __future__ import annotations

import pytest

from tests.shim.memory.cases import cases, run

PROGRAM = "kind_contract"
ROWS = [line.split() for line in cases(PROGRAM)]


def test_there_are_kinds() -> None:
    kinds = {kind for _, kind in ROWS}
    assert kinds >= {"managed", "swapped", "fixed"}


@pytest.mark.parametrize(("case", "kind"), ROWS)
def test_a_kind_of_memory_keeps_its_contract(case: str, kind: str) -> None:
    run(PROGRAM, case, kind)

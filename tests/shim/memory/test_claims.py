"""Claims of host memory whose answers cross what else the process says: shim/memory/claims.c."""

from __future__ import annotations

import pytest

from tests.shim.memory.cases import cases, run

PROGRAM = "claims_cases"


def test_there_are_cases() -> None:
    assert cases(PROGRAM)


@pytest.mark.parametrize("case", cases(PROGRAM))
def test_daemon_and_process_believe_the_same(case: str) -> None:
    run(PROGRAM, case)

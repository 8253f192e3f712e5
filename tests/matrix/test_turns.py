"""Each test of whole jobs has its turn, and no turn takes longer than others."""

from __future__ import annotations

from tests.matrix.turns import LEFT_OUT, ROOT, TURN_S, turns
from tests.support.parallel import SECONDS


def test_each_file_has_one_turn() -> None:
    named = [file for turn in turns() for file in turn]
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/slurm").glob("test_*.py")}
    assert sorted(named) == sorted(there - LEFT_OUT)
    assert there > LEFT_OUT


def test_no_turn_takes_long() -> None:
    """But for one of a single file."""
    for turn in turns():
        assert len(turn) == 1 or sum(SECONDS.get(file, 0) for file in turn) <= TURN_S

"""What is made of the times at which kernels of two jobs ran."""

from __future__ import annotations

from array import array
from pathlib import Path

from tests.gpu.overlap import judge_files

MS = 1_000_000
TURN = 500 * MS


def spans(path: Path, *pairs: tuple[int, int]) -> Path:
    path.write_bytes(array("Q", [n for pair in pairs for n in (*pair, 0)]).tobytes())
    return path


def turn(begin: int) -> list[tuple[int, int]]:
    """Kernels of 2 ms, all of which end."""
    return [(at, at + 2 * MS) for at in range(begin, begin + TURN, 2 * MS)]


def test_a_kernel_that_was_stopped_overlaps_nothing(tmp_path: Path) -> None:
    """It was stopped at the end of its job's turn, and went on with the next one."""
    gap, stopped = 3 * MS, (TURN, 2 * TURN + 6 * MS)
    first = spans(tmp_path / "first", *turn(0), stopped)
    second = spans(tmp_path / "second", *turn(TURN + gap))
    found = judge_files(first, second)
    assert (found.overlaps, found.turns) == (0, 2)
    assert found.gap_us_max == found.gap_us_min == gap / 1e3


def test_kernels_side_by_side_overlap(tmp_path: Path) -> None:
    first = spans(tmp_path / "first", *turn(0))
    second = spans(tmp_path / "second", (MS, 3 * MS))
    found = judge_files(first, second)
    assert found.overlaps == 2
    assert found.longest_overlap_us == 1000

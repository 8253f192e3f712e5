"""What is taken off a time because a process had no processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.processor_waits import ROW, Span, covered, spans


@pytest.mark.parametrize(
    ("by", "ns"),
    [
        ([], 0),
        ([(0, 5), (25, 30)], 0),
        ([(12, 15)], 3),
        ([(5, 12), (18, 30)], 4),
        ([(0, 30)], 10),
        ([(11, 15), (12, 14), (13, 17), (17, 18)], 7),
    ],
)
def test_each_moment_is_taken_off_once(by: list[Span], ns: int) -> None:
    assert covered((10, 20), by) == ns


def test_waits_are_brought_to_this_machine_s_clock(tmp_path: Path) -> None:
    log = tmp_path / "waits"
    log.write_bytes(ROW.pack(1_000_100, 30) + ROW.pack(1_000_200, 50) + b"cut")
    assert list(spans(log, 1_000_000)) == [(70, 100), (150, 200)]

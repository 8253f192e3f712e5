"""The benchmark of slices says which of its targets is missed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.bench.slices import AT_LEAST, SHARES, TARGETS, figures
from tests.bench.targets import beyond, print_table

KEPT: dict[str, Any] = {
    "service": {
        **dict.fromkeys(("alone_p50_ms", "alone_p99_ms"), 1.0),
        **dict.fromkeys(("p50_ms", "p99_ms", "long_kernels_p50_ms", "long_kernels_p99_ms"), 1.08),
        "batch_of_leftover": 0.99,
    },
    "saturating_of_alone": 0.95,
    "shares": {"asked": SHARES, "got": [0.109, 0.891]},
    "handoff_under_long_kernel_ms": 5.0,
    "moved_under_stop": {"wrong": 0},
}
# Where a figure is, and what is beyond its target.
BEYOND: dict[str, tuple[tuple[str | int, ...], float]] = {
    "service p50, of alone": (("service", "p50_ms"), 1.09),
    "service p99, of alone": (("service", "p99_ms"), 1.09),
    "service p50 beside 300 ms kernels, of alone": (("service", "long_kernels_p50_ms"), 1.09),
    "service p99 beside 300 ms kernels, of alone": (("service", "long_kernels_p99_ms"), 1.09),
    "batch, of the leftover": (("service", "batch_of_leftover"), 0.98),
    "saturating, of alone": (("saturating_of_alone",), 0.94),
    "error of a share": (("shares", "got", 1), 0.88),
    "handoff without memory, ms": (("handoff_under_long_kernel_ms",), 5.1),
    "wrong words": (("moved_under_stop", "wrong"), 1),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_figure_beyond_its_target_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert beyond(figures(KEPT), TARGETS, AT_LEAST) == []
    found, (path, figure) = copy.deepcopy(KEPT), BEYOND[name]
    place = found
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]
    place[path[-1]] = figure  # type: ignore[index]
    assert beyond(figures(found), TARGETS, AT_LEAST) == [name]
    print_table(figures(found), TARGETS, AT_LEAST)
    missed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("missed")]
    assert [line.startswith(name) for line in missed] == [True]

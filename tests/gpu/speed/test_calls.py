"""What calls cost a program, and which judgement decides."""

from __future__ import annotations

import pytest

from tests.gpu.speed.calls import (
    KINDS,
    UnknownCost,
    added_us,
    interposed_functions,
    kind_of,
)
from tests.gpu.speed.intervals import Ratio
from tests.gpu.speed.measuring import Row, compare_calls

COSTS = {"launch": 2.0, "copy": 3.0, "memset": -1.0}


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("cuLaunchKernel", "launch"),
        ("cuLaunchKernelEx_ptsz", "launch"),
        ("cuMemcpyDtoHAsync_v2", "copy"),
        ("cuMemsetD8Async", "memset"),
        ("cuMemAlloc_v2", "allocate"),
        ("cuMemAllocAsync", "allocate_ordered"),
        ("cuMemFree_v2", None),  # its allocation's
        ("cuEventRecord", None),
        ("cuStreamIsCapturing", None),
    ],
)
def test_a_function_has_the_cost_of_its_kind(function: str, kind: str | None) -> None:
    assert kind_of(function) == kind


def test_every_kind_is_of_functions_that_are_interposed() -> None:
    names = interposed_functions()
    assert len(names) > 200
    for start in KINDS:
        assert any(name.startswith(start) for name in names), start


def test_functions_that_are_not_measured_are_named() -> None:
    with pytest.raises(UnknownCost, match="cuMemCreate"):
        kind_of("cuMemCreate")


def test_calls_cost_their_number_times_their_cost() -> None:
    calls = {"cuLaunchKernel": 1000.0, "cuMemcpyAsync": 10.0, "cuMemsetD8Async": 5.0}
    assert added_us(calls | {"cuEventRecord": 1e6}, COSTS) == pytest.approx(2.03)


def row_of(low: float, high: float) -> Row:
    return Row("p", ratios={"swap": {"host": Ratio(1.0, low, high)}}, step_us={"bare": 1000.0})


@pytest.mark.parametrize(
    ("low", "high", "launches", "decided", "verdict"),
    [
        (0.99, 1.005, 1e9, "times", "within"),
        (0.99, 1.02, 1000, "calls", "within"),
        (0.99, 1.02, 6000, "calls", "unclear"),
        (1.02, 1.03, 1000, "times", "slower"),
    ],
)
def test_calls_decide_where_times_cannot(
    low: float, high: float, launches: float, decided: str, verdict: str
) -> None:
    row = row_of(low, high)
    compare_calls(row, {"calls": {"cuLaunchKernel": launches}}, {"swap": COSTS})
    assert (row.decided_by("swap"), row.verdict("swap")) == (decided, verdict)
    assert row.good == (verdict != "slower")


@pytest.mark.parametrize(
    "counted", [{"calls": None, "why": "no CUPTI"}, {"calls": {"cuMemCreate": 1.0}}]
)
def test_without_known_calls_times_stand_alone(counted: dict[str, object]) -> None:
    row = row_of(0.99, 1.02)
    compare_calls(row, counted, {"swap": COSTS})
    assert (row.decided_by("swap"), row.verdict("swap")) == ("times", "unclear")
    assert row.no_calls

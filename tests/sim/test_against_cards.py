"""What is predicted for two trainings that really ran on H200s, as docs/real-gpu.md has them
(Two trainings that do not fit)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from leased.base import toml_file
from leased.sim.jobs import Setting
from leased.sim.run import run
from leased.sim.trace import trace_of

S = 1_000_000_000
NEAR = 0.1
PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulate.md"
# A handoff moved 33 GiB each way in 0.82 s, as the same page of figures says.
LINK_GIB_S = 33 / 0.82


class Ran(NamedTuple):
    """Two trainings at once. bare_s: how long one alone took; done_s: how long both took."""

    busy: float  # the part of its cycles in which it used the GPU
    cycles: int
    bare_s: float
    quantum_s: int
    done_s: float


RAN = (
    Ran(0.5, 8, 165.9 / 2, 5, 110.2),
    Ran(0.5, 8, 165.9 / 2, 30, 103.6),
    Ran(0.5, 8, 165.9 / 2, 60, 105.1),
    Ran(0.9, 8, 163.1 / 2, 5, 157.7),
    Ran(0.9, 5, 102.0 / 2, 30, 100.5),
    Ran(0.9, 5, 102.0 / 2, 60, 99.5),
)


def predicted_s(ran: Ran) -> float:
    """How long the simulator says that both take."""
    cycle = ran.bare_s / ran.cycles
    job = {
        "name": "training",
        "count": 2,
        "memory": "36.5GiB",
        "kind": "swap",
        "gpu": cycle * ran.busy,
        "cpu": cycle * (1 - ran.busy),
        "cycles": ran.cycles,
    }
    gpu = {"memory": "40GiB", "link_gib_s": LINK_GIB_S}
    trace = trace_of({"gpu": gpu, "job": [job]})
    return run(trace, Setting("fcfs", "auto", ran.quantum_s * S)).makespan / S


@pytest.mark.parametrize("ran", RAN)
def test_a_prediction_is_what_an_h200_took(ran: Ran) -> None:
    assert predicted_s(ran) == pytest.approx(ran.done_s, rel=NEAR)


def test_the_page_has_these_figures_and_predictions() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"\| heavy_\w+, (\d) cycles \| `tq:(\d+)` \| ([\d.]+) \| ([\d.]+) \|", text)
    shown = [(int(n), int(tq), float(done), float(said)) for n, tq, done, said in rows]
    assert shown == [
        (ran.cycles, ran.quantum_s, ran.done_s, round(predicted_s(ran), 1)) for ran in RAN
    ]


def test_the_trace_of_the_page_is_one() -> None:
    section = PAGE.read_text().split("## Against an H200", 1)[1]
    trace = trace_of(toml_file.parse(re.findall(r"```toml\n(.*?)```", section, re.S)[0].encode()))
    assert run(trace, Setting("fcfs", "auto", 30 * S)).makespan / S == pytest.approx(
        predicted_s(RAN[1]), rel=0.01
    )

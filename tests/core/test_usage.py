"""The figures of usage stand in one table; whatever shows them has them all."""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from leased.cli import show_usage
from leased.leasing.step_division import DIVIDED
from leased.usage.usage import FIGURES, Usage, figures

ROOT = Path(__file__).resolve().parents[2]
UUID = "GPU-x"
EACH = Usage(**{line.name: 10**9 * n for n, line in enumerate(fields(Usage), 1)})


def test_every_figure_is_in_slurms_accounting() -> None:
    said = figures(EACH)
    assert list(said) == [figure.key for figure in FIGURES]
    assert said["lease_s"] == EACH.lease_ns / 10**9
    assert said["handoffs"] == EACH.handoffs
    assert said["energy_j"] == EACH.energy_mj / 10**3


def test_means_are_over_the_jobs_time() -> None:
    """2 MiB for 3 s of 4 s."""
    used = Usage(time_ns=4 * 10**9, wanted_kib_ms=2 * 1024 * 3000)
    assert figures(used)["mean_wanted_bytes"] == (2 << 20) * 3 // 4
    assert figures(Usage(wanted_kib_ms=7))["mean_wanted_bytes"] == 0


def test_rare_figures_are_left_out_if_they_are_0() -> None:
    none = figures(Usage())
    assert set(none) == {figure.key for figure in FIGURES if not figure.rare}


def test_every_figure_has_a_column() -> None:
    text = io.StringIO()
    Console(file=text, width=200).print(show_usage.of_job({"usage": {UUID: figures(EACH)}}))
    head = text.getvalue()
    assert all(figure.label in head for figure in FIGURES)


def test_users_are_told_every_figure() -> None:
    lines = (ROOT / "docs" / "user.md").read_text().splitlines()
    first = lines.index("| figure | meaning |") + 2
    rows = [f"| `{figure.key}` | {figure.meaning} |" for figure in FIGURES]
    assert lines[first : first + len(FIGURES) + 1] == [*rows, ""]


def test_of_every_figure_it_is_said_what_a_step_has() -> None:
    counted = ["time_ns", "wait_ns", "peak_bytes", "peak_resident_bytes"]  # for each, not divided
    of_the_job = ["strays"]
    said = [*DIVIDED, *counted, *of_the_job]
    assert sorted(said) == sorted(figure.name for figure in FIGURES)


def test_the_document_defines_every_figure_of_a_job_and_of_a_step() -> None:
    text = (ROOT / "docs" / "accounting.md").read_text()
    of_jobs, of_steps = text.split("| figure of a step |")
    for part in (of_jobs, of_steps):
        rows = "\n".join(line for line in part.splitlines() if line.startswith("| `"))
        assert [figure.key for figure in FIGURES if f"`{figure.key}`" not in rows] == []

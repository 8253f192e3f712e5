"""The figures of usage stand in one table; whatever shows them has them all."""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from leased.cli import show
from leased.core.usage import FIGURES, Usage
from leased.slurm import accounting

ROOT = Path(__file__).resolve().parents[2]
UUID = "GPU-x"
EACH = Usage(**{line.name: 10**9 * n for n, line in enumerate(fields(Usage), 1)})


def test_every_figure_is_in_slurms_accounting() -> None:
    said = accounting.summary(EACH)
    assert list(said) == [figure.key for figure in FIGURES]
    assert said["lease_s"] == 1.0
    assert said["handoffs"] == 4 * 10**9


def test_what_never_happened_is_left_out_where_that_is_rare() -> None:
    none = accounting.summary(Usage())
    assert set(none) == {figure.key for figure in FIGURES if not figure.rare}


def test_every_figure_has_a_column() -> None:
    text = io.StringIO()
    Console(file=text, width=200).print(show.usage({"usage": {UUID: accounting.summary(EACH)}}))
    head = text.getvalue()
    assert all(figure.label in head for figure in FIGURES)


def test_readme_has_every_figure() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    first = lines.index("| figure | meaning |") + 2
    rows = [f"| `{figure.key}` | {figure.meaning} |" for figure in FIGURES]
    assert lines[first : first + len(FIGURES) + 1] == [*rows, ""]

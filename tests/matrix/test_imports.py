"""What runs in a tree with next to nothing imports nothing that only pip brings."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_THERE = ("pytest", "hypothesis", "rich", "numpy")


@pytest.mark.parametrize("program", ["one_job", "placed_job", "record_answers"])
def test_a_program_of_a_small_tree_needs_no_more_than_the_tree_has(program: str) -> None:
    hide = f"import sys; sys.modules.update(dict.fromkeys({NOT_THERE}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}; import tests.matrix.{program}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

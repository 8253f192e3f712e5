"""What runs in bare trees, where no test tool is installed, needs none."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_TREES = ("tests.matrix.one_job", "tests.matrix.placed_job", "tests.matrix.record_answers")
WITHOUT = """
import sys
for name in ("pytest", "hypothesis"):
    sys.modules[name] = None
__import__(sys.argv[1])
"""


@pytest.mark.parametrize("module", IN_TREES)
def test_scripts_of_trees_import_no_test_tool(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, module], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

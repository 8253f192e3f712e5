"""Each start of the Python that runs the tests: hundreds of their programs begin with it."""

from __future__ import annotations

import subprocess
import sys

# What makes of the checkout an installed package by asking at each import, not by one more path.
ASKS = "import sys; print([str(each) for each in sys.meta_path if 'editable' in str(each).lower()])"


def test_it_imports_no_finder_of_the_checkout() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASKS], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"

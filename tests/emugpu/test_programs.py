"""What a test reads of its program's output: a line, then all the rest, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys

from tests.emugpu.programs import finish, next_line


def test_lines_that_come_together_are_read_one_by_one() -> None:
    code = "import os; os.write(1, b'first\\nsecond\\nthird\\n')"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.wait()
        assert next_line(process) == "first\n"
        assert finish(process) == "second\nthird\n"


def test_there_is_no_line_after_the_end() -> None:
    with subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True) as process:
        assert next_line(process) == ""

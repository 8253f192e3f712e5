"""The linters, as tests: style and types are part of what must hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON_TREES = ["gpu_lease", "leased", "spank", "tests"]


def tracked(*patterns: str) -> list[str]:
    """Files of the checkout that git knows or would add, by pattern. Skips the test where nobody
    knows them: an unpacked archive has no .git, and a tree may have no git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("only git knows which files are the project's, and this is no checkout of it")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listed.stdout.split() if (ROOT / name).exists()]


def tool(name: str) -> str:
    """Path of a linter: the venv's, else the system's. Missing: the test fails."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed; run `make setup`")
    return found


def check(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    check(tool("ruff"), "check", "--no-cache", *PYTHON_TREES)


def test_python_is_formatted() -> None:
    check(tool("ruff"), "format", "--no-cache", "--check", *PYTHON_TREES)


@pytest.mark.timeout(900)  # without its cache it takes minutes where others work too
def test_mypy_strict() -> None:
    check(tool("mypy"))


def test_c_is_formatted() -> None:
    files = tracked("*.c", "*.h")
    assert files
    check(tool("clang-format"), "--dry-run", "--Werror", *files)


def test_headings_in_c_files_end_on_their_lines() -> None:
    """clang-format breaks one that is too long, and counts it as formatted then."""
    broken = re.compile(r"^/\* -- [^\n]*\n[ *-]*\*/$", re.MULTILINE)
    files = {name: (ROOT / name).read_text() for name in tracked("*.c", "*.h")}
    found = [f"{name}: {each}" for name, text in files.items() for each in broken.findall(text)]
    assert not found, "\n".join(found)


def test_shell_scripts() -> None:
    scripts = tracked("*.sh", ".ci/run", "slurm-conf/prolog", "slurm-conf/epilog")
    assert scripts
    check(tool("shellcheck"), *scripts)

"""How packaging/setup.sh configures the build, by a meson and a ninja that only note it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# It writes down the options that it was given, where meson does.
MESON = """#!/bin/sh
mkdir -p build/meson/meson-private
touch build/meson/build.ninja
case "$*" in
*-Dwerror=false*) echo "werror = false" ;;
*-Dwerror=true*) echo "werror = true" ;;
esac >build/meson/meson-private/cmd_line.txt
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What setup.sh needs of one."""
    (tmp_path / "packaging").mkdir()
    for name in ("setup.sh", "source.sh"):
        shutil.copy(ROOT / "packaging" / name, tmp_path / "packaging" / name)
    programs = tmp_path / "build" / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("meson", MESON), ("ninja", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "cuda.h").touch()
    return tmp_path


def set_up(checkout: Path, *arguments: str) -> bool:
    """Whether C is compiled with -Werror then."""
    path = f"{checkout}/build/venv/bin:{os.environ['PATH']}"
    env = os.environ | {"PYTHON": sys.executable, "CUDA_INCLUDE": str(checkout), "PATH": path}
    command = ["packaging/setup.sh", *arguments]
    done = subprocess.run(command, cwd=checkout, env=env, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    said = checkout / "build" / "meson" / "meson-private" / "cmd_line.txt"
    return "werror = false" not in said.read_text()


def test_warnings_are_errors_for_who_works_on_a_checkout(checkout: Path) -> None:
    assert set_up(checkout)
    assert set_up(checkout)


def test_and_also_when_it_was_installed_from_first(checkout: Path) -> None:
    assert not set_up(checkout, "node"), "a newer compiler's warning keeps no node from installing"
    assert set_up(checkout)
    assert set_up(checkout, "node"), "what is built is not built anew"

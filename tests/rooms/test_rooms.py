"""The daemon's rooms call downwards only, and what decides does no input and no output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Hold the modules of a checkout against the contracts of its pyproject.toml."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "NO_COLOR": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_every_room_imports_only_rooms_below_it() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "added", "said"),
    [
        ("core/speed.py", "import leased.leasing.leases", "leased.core is not allowed to import"),
        (
            "wire/wire.py",
            "import leased.store.columns",
            "leased.wire is not allowed to import",
        ),
        ("core/events.py", "import socket", "leased.core is not allowed to import socket"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, added: str, said: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "leased", tmp_path / "leased", ignore=unneeded)
    with (tmp_path / "leased" / module).open("a") as file:
        file.write(f"\n{added}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stderr
    assert said in done.stdout
    assert added.split()[1] in done.stdout


def test_a_room_that_has_no_place_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "leased", tmp_path / "leased")
    (tmp_path / "leased" / "attic").mkdir()
    (tmp_path / "leased" / "attic" / "__init__.py").touch()
    assert "leased.attic" in lint_imports(tmp_path).stdout


def test_every_room_is_installed() -> None:
    """meson copies them by name."""
    folder = ROOT / "leased"
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    listed = re.search(r"foreach room : \[(.*?)\]", (folder / "meson.build").read_text(), re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"'([a-z]+)'", listed[1])) == rooms

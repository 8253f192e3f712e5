"""The daemon's rooms call downwards only, and what decides does no input and no output."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
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
        ("core/rules.py", "import leased.leasing.leases", "leased.core is not allowed to import"),
        (
            "wire/parser.py",
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


def rooms() -> set[str]:
    return {path.parent.name for path in (ROOT / "leased").glob("*/__init__.py")}


def test_every_room_is_installed() -> None:
    meson = Path(sys.executable).parent / "meson"
    done = subprocess.run(
        [str(meson), "introspect", "--install-plan", str(ROOT / "build" / "meson")],
        check=True,
        capture_output=True,
        text=True,
    )
    installed = {Path(path) for path in json.loads(done.stdout)["install_subdirs"]}
    assert {path.name for path in installed if path.parent == ROOT / "leased"} == rooms()


def test_every_room_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("## The daemon") : text.index("## The interposer")]
    described = re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    assert described == layers, "docs/architecture.md has the rooms from the highest to the lowest"

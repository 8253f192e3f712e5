"""The daemon's rooms call downwards only, and what decides does no input and no output."""

from __future__ import annotations

import ast
import graphlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from leased.base import toml_file

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("leased", "gpu_lease")


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
        (
            "leased/core/rules.py",
            "import leased.leasing.leases",
            "leased.core is not allowed to import",
        ),
        (
            "leased/wire/header.py",
            "import leased.store.columns",
            "leased.wire is not allowed to import",
        ),
        ("leased/core/events.py", "import socket", "leased.core is not allowed to import socket"),
        ("gpu_lease/dlpack.py", "import gpu_lease.chain", "gpu_lease.dlpack is not allowed to"),
        ("gpu_lease/chain.py", "import leased.base", "gpu_lease is not allowed to import leased"),
        ("leased/api/client.py", "import gpu_lease.chain", "leased is not allowed to import gpu_"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, added: str, said: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    unneeded = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=unneeded)
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{added}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stderr
    assert said in done.stdout
    assert added.split()[1] in done.stdout


def test_a_room_that_has_no_place_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    (tmp_path / "leased" / "attic").mkdir()
    (tmp_path / "leased" / "attic" / "__init__.py").touch()
    assert "leased.attic" in lint_imports(tmp_path).stdout


# -- circles -------------------------------------------------------------------------


def imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    """The modules of ours that a file imports, also for its types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def circle_in(checkout: Path) -> list[str]:
    """Files of leased/ or gpu_lease/ that import each other; empty: none do."""
    files = {
        ".".join(path.relative_to(checkout).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (checkout / package).rglob("*.py")
    }
    below = {
        name: {other for other in imported(path, files) if other in files and other != name}
        for name, path in files.items()
    }
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as fault:
        return list(fault.args[1])
    return []


def test_no_files_import_each_other() -> None:
    assert circle_in(ROOT) == []


def test_a_circle_is_found_also_of_types_alone(tmp_path: Path) -> None:
    for name, added in (("one", "from leased.two import Two"), ("two", "import leased.one")):
        path = tmp_path / "leased" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    {added}\n")
    assert set(circle_in(tmp_path)) == {"leased.one", "leased.two"}


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
    contracts = toml_file.parse((ROOT / "pyproject.toml").read_bytes())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    assert described == layers, "docs/architecture.md has the rooms from the highest to the lowest"

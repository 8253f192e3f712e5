"""Each command that is shown to people is run by a test as it stands, or NOT_RUN has the reason.

A test that runs commands takes them from their document, by documents.shown() or section(): those
calls are what is looked for here, with what they give.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import documents

SHOWN_TO_PEOPLE = (*documents.FOR_READERS, "gpu-share(7)")
TAKERS = {"shown": documents.shown, "section": documents.section}
OF_A_REAL_DRIVER = "kernel modules of NVIDIA's driver, where there is a GPU"
# tests/containers enables the same files in mount namespaces.
OF_A_RUNTIME = "neither podman nor enroot is on the booted cluster"
NOT_RUN = {
    "ln -s /usr/share/gpu-lease/containers/podman": OF_A_RUNTIME,
    "ln -s /usr/share/gpu-lease/containers/enroot": OF_A_RUNTIME,
    "git clone <this repository> gpu-lease && cd gpu-lease": "who reads it has another address",
    "make demo": "four minutes; its parts are run by tests/demo/test_demo.py",
    "make test": "it runs this test; .ci/run runs it on each commit",
    "gpu-lease: GPU 0:": "no command but what sacct shows",
    "systemctl stop nvidia-persistenced": OF_A_REAL_DRIVER,
    "rmmod nvidia_uvm": OF_A_REAL_DRIVER,
    "modprobe nvidia": OF_A_REAL_DRIVER,
}


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module gives names to."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value]
            for name, text in zip(names, values):
                if isinstance(name, ast.Name) and isinstance(text, ast.Constant):
                    found[name.id] = str(text.value)
    return found


def calls(code: str) -> Iterator[tuple[str, str, str]]:
    """Name and two texts of each call that takes commands from a document."""
    tree = ast.parse(code)
    named = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) == 2:
            taker = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [getattr(arg, "value", named.get(getattr(arg, "id", ""))) for arg in node.args]
            if taker in TAKERS and isinstance(texts[0], str) and isinstance(texts[1], str):
                yield taker, texts[0], texts[1]


def script_calls(code: str) -> Iterator[tuple[str, str]]:
    """Document and beginning of each command that a shell script of tests takes."""
    for line in re.findall(r"-m tests\.docs\.documents (.+)", code.replace("\\\n", " ")):
        words = list(itertools.takewhile(lambda word: not word.startswith(">"), shlex.split(line)))
        yield from ((words[0], begin) for begin in words[1:])


def runs_tests(path: Path) -> bool:
    return path.name.startswith(("test_", "check_", "conftest.")) and path != Path(__file__)


@functools.cache
def run_by_tests() -> dict[str, set[str]]:
    """The commands that tests run, by document."""
    found: dict[str, set[str]] = {name: set() for name in SHOWN_TO_PEOPLE}
    for path in filter(runs_tests, (ROOT / "tests").rglob("*.py")):
        for taker, name, which in calls(path.read_text()):
            lines = TAKERS[taker](name, which)
            found[name] |= {lines} if isinstance(lines, str) else set(lines)
    for path in (ROOT / "tests").rglob("*.sh"):
        for name, begin in script_calls(path.read_text()):
            found[name].add(documents.shown(name, begin))
    return found


@functools.cache
def of_scripts() -> set[str]:
    """Lines of the batch scripts, which tests/slurm/test_recipes.py runs."""
    texts = [text for name in documents.FOR_READERS for text in documents.scripts(ROOT / name)]
    return {line for text in texts for line in text.splitlines()}


def is_of(line: str, begin: str) -> bool:
    """A line of packages is that one alone; others may have more behind what they begin with."""
    return line == begin if begin.startswith("apt ") else line.startswith(begin)


def without_comment(line: str) -> str:
    return line.partition("  #")[0].rstrip()


@pytest.mark.parametrize("name", SHOWN_TO_PEOPLE)
def test_each_command_is_run_or_has_a_reason(name: str) -> None:
    run = run_by_tests()[name] | of_scripts()
    for line in documents.commands()[name]:
        reasons = [why for begin, why in NOT_RUN.items() if is_of(line, begin)]
        is_run = line in run or without_comment(line) in run
        assert is_run or reasons, f"no test runs it: {line}"
        assert not (is_run and reasons), f"it is run, NOT_RUN is wrong: {line}"


def test_each_reason_is_for_a_command() -> None:
    lines = [line for name in SHOWN_TO_PEOPLE for line in documents.commands()[name]]
    for begin in NOT_RUN:
        assert any(is_of(line, begin) for line in lines), begin


CODE = """
README, OTHER = "README.md", 1
documents.shown(README, "make"); shown(name, "x"); section("a", "b"); other("a", "b")
"""
SCRIPT = """
	"$PYTHON" -m tests.docs.documents docs/a.md "dnf install" \\
		make >"$tree/lines"
"""


def test_calls_that_take_commands_are_found() -> None:
    assert list(calls(CODE)) == [("shown", "README.md", "make"), ("section", "a", "b")]
    assert list(script_calls(SCRIPT)) == [("docs/a.md", "dnf install"), ("docs/a.md", "make")]

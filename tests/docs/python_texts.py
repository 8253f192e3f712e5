"""What Python code can say: its texts, read from the sources, with a word for each value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import ROOT
from tests.support.together import zip_strict

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

VALUE = "X"  # stands in a text for each value that is only known when it is said
LOGGED = re.compile(r"%[-.*\d]*l*[a-z]")
TROUBLE = ("warning", "error", "exception", "critical")


class Texts(ast.NodeVisitor):
    """Visits a file in its order, so that a name has the text that was last assigned to it."""

    def __init__(self) -> None:
        self.assigned: dict[str, list[str]] = {}
        self.outside: dict[str, list[str]] = {}  # assigned before the first function
        self.said: list[str] = []

    def of(self, node: ast.expr) -> list[str]:
        """The texts that an expression can be; one word where nothing is known of it."""
        found = [VALUE]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value]
        elif isinstance(node, ast.Name):
            found = self.assigned.get(node.id, found)
        elif isinstance(node, ast.IfExp):
            found = self.of(node.body) + self.of(node.orelse)
        elif isinstance(node, ast.BoolOp):
            found = [text for value in node.values for text in self.of(value)]
        elif isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
            found = self.of(node.value)
        elif isinstance(node, ast.JoinedStr):
            found = self._joined(list(node.values))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            found = self._joined([node.left, node.right])
        elif isinstance(node, ast.Call) and named(node.func, "join"):
            found = self.of(node.args[0])
        return found

    def _joined(self, parts: list[ast.expr]) -> list[str]:
        texts = [""]
        for part in parts:
            texts = [text + more for text in texts for more in self.of(part)]
        return texts

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.outside = self.outside or self.assigned
        self.assigned = dict(self.outside)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            self.assigned[target.id] = self.of(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, text in zip_strict(target.elts, value.elts):
                if isinstance(name, ast.Name):
                    self.assigned[name.id] = self.of(text)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.assigned[node.target.id] = self._joined([node.target, node.value])

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        func = node.func
        if named(func, "append") and isinstance(func.value, ast.Name):
            self.assigned.setdefault(func.value.id, []).extend(self.of(node.args[0]))


class Findings(Texts):
    """What gpu-leasectl check finds wrong."""

    def visit_Call(self, node: ast.Call) -> None:
        super().visit_Call(node)
        if isinstance(node.func, ast.Name) and node.func.id == "Finding":
            given = [part for each in node.args for part in elements(each)]
            if isinstance(given[1], ast.Name) and given[1].id in ("WARNING", "FAULT"):
                self.said += self.of(given[2])
        elif isinstance(node.func, ast.Name) and node.func.id == "finding":
            self.said += self.of(node.args[1])


class Logged(Texts):
    """What a program writes to its log as a warning or an error."""

    def visit_Call(self, node: ast.Call) -> None:
        super().visit_Call(node)
        if any(named(node.func, level, "log") for level in TROUBLE):
            texts = self.of(node.args[0])
            if texts == ["%s"] and len(node.args) > 1:
                texts = self.of(node.args[1])
            self.said += [LOGGED.sub(VALUE, text) for text in texts]


class Told(Texts):
    """What a part of the placer has it log: as a fault that it raises, or by _say."""

    def visit_Call(self, node: ast.Call) -> None:
        super().visit_Call(node)
        silent = isinstance(node.func, ast.Name) and node.func.id == "Silent"
        if silent or named(node.func, "_say"):
            self.said += self.of(node.args[0])


def named(node: ast.expr, attr: str, of: str | None = None) -> TypeGuard[ast.Attribute]:
    """Is it an attribute of this name, of a variable of that name where one is given?"""
    if not isinstance(node, ast.Attribute) or node.attr != attr:
        return False
    return of is None or (isinstance(node.value, ast.Name) and node.value.id == of)


def elements(node: ast.expr) -> list[ast.expr]:
    """The arguments that *(a, b) stands for, or the one that it is."""
    if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple):
        return list(node.value.elts)
    return [node]


def said(kind: type[Texts], files: Iterable[Path]) -> dict[str, str]:
    """By text, the file that says it. What is only passed on is left out."""
    found = {}
    for file in sorted(files):
        visitor = kind()
        visitor.visit(ast.parse(file.read_text()))
        for text in visitor.said:
            if re.sub(r"\bX\b|\W", "", text):
                found[text] = str(file.relative_to(ROOT))
    return found

"""docs/troubleshooting.md has what refuses a job: each row is said by the code, and what the code
says has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.test_troubleshooting import GAP, matches, rows

C_LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
# A call with a literal, which may be of several: the words of a refusal come first.
OF_C = re.compile(rf"\b(?:submit_refuse|refuse)\(\s*(?:fault,\s*)?((?:{C_LITERAL}\s*)+)")
VALUE = re.compile(r"%[-.*\d]*(?:l|z)*[a-z]")
SPANK = ROOT / "spank"
SUBMITTING = ("submit.c", "grammar.c", "option_*.c")
# Of a job's start. What is asked of the daemon by others is not a job's.
STARTING = (
    "admin/gang.py",
    "admin/host_memory.py",
    "admin/job_class.py",
    "admin/label_check.py",
    "admin/registration.py",
    "admin/several_nodes.py",
    "admin/shard_memory.py",
    "slurm/clusters.py",
    "mps/mps.py",
    "mps/together.py",
)
NOT_OF_A_START = ("is not registered",)  # a step joins, and then registers


def of_c(path: Path) -> Iterator[str]:
    """The refusals in a file, with a word for each value; those that only pass one on are left."""
    for call in OF_C.finditer(path.read_text()):
        text = "".join(re.findall(C_LITERAL, call[1])).replace("%%", "\0")
        if VALUE.sub("", text):
            yield VALUE.sub("X", text).replace("\0", "%")


def text_of(node: ast.expr) -> str:
    """A text of Python, with a word for each value; "": it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values)
    return ""


def of_python(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Refused", "Refusal"):
            text = text_of(node.args[0])
            if text and not text.endswith(NOT_OF_A_START):
                yield text


def before_a_job() -> list[str]:
    said = [text for name in SUBMITTING for path in SPANK.glob(name) for text in of_c(path)]
    lua = (ROOT / "slurm-conf" / "gpu_share.lua").read_text()
    sentences = re.findall(r'"([^"\n]*; [^"\n]*)"', lua)
    sentences += re.findall(r'CONFLICT\(.*"(.*)"\)', (SPANK / "conflicts.def").read_text())
    return said + [re.sub("%[sg]", "X", text) for text in sentences]


def at_a_start() -> list[str]:
    said = [text for name in STARTING for text in of_python(ROOT / "leased" / name)]
    said += list(of_python(ROOT / "spank" / "register.py"))
    limits = of_python(ROOT / "leased" / "admin" / "user_limits.py")
    return said + [text for text in limits if "this site" in text]


def check_rows(title: str, said: list[str]) -> None:
    """A value that a row spells out may stand where the code has a gap."""
    known = rows(title)
    for row in known:
        assert any(matches(row, text) or matches(text_as_row(text), row) for text in said), row
    for text in said:
        assert any(matches(row, text) or matches(text_as_row(text), row) for row in known), text


def text_as_row(text: str) -> str:
    return re.sub(r"\bX\b|X(?=[gG%]|ms|m\b|MiB|TiB)", GAP, text)


def test_refusals_before_there_is_a_job() -> None:
    said = before_a_job()
    assert len(said) > 20
    check_rows("A job is refused before it exists", said)


def test_refusals_at_a_start() -> None:
    said = at_a_start()
    assert len(said) > 12
    check_rows("A job fails when it starts", said)


def test_a_row_that_nothing_says_is_found() -> None:
    assert matches("job … of user … waits", "job X of user X waits")
    assert not any(matches("the moon is full", text) for text in before_a_job())

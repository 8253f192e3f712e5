"""docs/troubleshooting.md has what administrators read: the findings of gpu-leasectl check,
and the warnings and errors of the daemon's log. Each row is said by the code, and what the code
says has a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.python_texts import Findings, Logged, Told, said
from tests.docs.test_troubleshooting import matches, rows

ASKING = ROOT / "leased" / "slurm" / "asking.py"  # the placer does
FOUND = "`gpu-leasectl check` finds something"
LOG = "The daemon's log"


def findings() -> dict[str, str]:
    folder = ROOT / "leased" / "cli"
    return said(Findings, [*(folder / "checks").glob("*.py"), folder / "check.py"])


def logged() -> dict[str, str]:
    folder = ROOT / "leased"
    placers = (folder / "placer", ASKING)
    files = [p for p in folder.rglob("*.py") if p not in placers and p.parent not in placers]
    return said(Logged, files)


def check_rows(title: str, texts: dict[str, str]) -> None:
    known = rows(title)
    for row in known:
        assert any(matches(row, text) for text in texts), f"nobody says {row!r}"
    for text, file in texts.items():
        assert any(matches(row, text) for row in known), f"not in the document, of {file}: {text!r}"


def test_messages_of_check() -> None:
    texts = findings()
    assert len(texts) > 60
    check_rows(FOUND, texts)


def test_messages_of_the_daemons_log() -> None:
    texts = logged()
    assert len(texts) > 40
    check_rows(LOG, texts)


def test_messages_of_the_placers_log() -> None:
    folder = ROOT / "leased" / "placer"
    texts = said(
        Logged,
        [
            *(folder / f"{name}.py" for name in ("service", "tickets_file", "known_rules")),
            ASKING,
        ],
    )
    faults = said(Told, [folder / "service.py", folder / "slurm_link.py", ASKING])
    assert len(texts) > 4
    assert len(faults) > 4
    check_rows("The log of gpu-lease-placer", texts | faults)


CODE = """
UNIT = "the unit"

def one(site):
    words = "it is " + ("red" if site else "green")
    words += f", says {site.name}"
    yield Finding("a", WARNING, words)
    yield Finding(*("b", FAULT, f"{UNIT} is {site}"), "a remedy")
    yield Finding("c", OK, "all is well")
    yield Finding("d", FAULT, str(site))
    yield finding("f", "" if site else "it is blue", "a remedy", "all is well")

def two(words):
    log.warning("job %d: %s", 1, words)
    log.info("nothing")
    yield Finding("e", FAULT, words)
"""


def test_texts_are_found_in_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.python_texts.ROOT", tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    found = ["it is red, says X", "it is green, says X", "the unit is X", "it is blue"]
    assert list(said(Findings, [tmp_path / "code.py"])) == found
    assert list(said(Logged, [tmp_path / "code.py"])) == ["job X: X"]

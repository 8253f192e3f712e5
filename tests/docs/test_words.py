"""One word for one thing: docs/words.md has the words, and no text uses others for them."""

from __future__ import annotations

import re

import pytest

from leased.cli import ctl
from tests.conftest import ROOT

WORDS = ROOT / "docs" / "words.md"
DOCUMENTS = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "slurm-conf/gpu-leased.toml"]
C_FOLDERS = ["shim", "spank", "tests/shim"]


def rows() -> dict[str, list[str]]:
    """By word, what it is not called."""
    found = {}
    for line in WORDS.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| word |"):
            word, meaning, others = (part.strip() for part in line.strip("|").split(" |", 2))
            assert meaning, line
            found[word] = [other.strip() for other in others.strip("| ").split(",") if other]
    return found


def told() -> dict[str, str]:
    """What people read, by where it stands; code is what programs call it."""
    files = [ROOT / name for name in DOCUMENTS] + sorted((ROOT / "docs").glob("*.md"))
    texts = {file.name: file.read_text() for file in files if file != WORDS}
    return {
        name: re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S) for name, text in texts.items()
    }


def other_words(text: str) -> list[str]:
    """Those of other words for our things that stand in a text."""
    others = [other for each in rows().values() for other in each]
    return [other for other in others if re.search(rf"\b{re.escape(other)}\b", text, re.IGNORECASE)]


def test_the_table_is_understood() -> None:
    assert "handover" in rows()["handoff"]
    assert rows()["tenant"] == []
    assert other_words("After the Handover the shim library waits.") == ["shim library", "handover"]


@pytest.mark.parametrize("name", told())
def test_a_document_uses_one_word_for_one_thing(name: str) -> None:
    assert other_words(told()[name]) == [], "docs/words.md says what it is called instead"


def c_texts(code: str) -> str:
    """The comments and the texts in quotes of a C file, each on a line of its own."""
    found = re.findall(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', code, re.S)
    return "\n".join(re.sub(r"\s*\n\s*\*?\s*", " ", text) for text in found)


def test_comments_and_messages_of_c_are_found() -> None:
    code = '/* Of the shim\n * library. */\nint handover; say("the Handover of \\"it\\"");'
    assert other_words(c_texts(code)) == ["shim library", "handover"]
    assert other_words(c_texts("int handover; /* a lease */")) == []


@pytest.mark.parametrize("folder", C_FOLDERS)
def test_c_uses_one_word_for_one_thing(folder: str) -> None:
    files = sorted(path for end in "ch" for path in (ROOT / folder).rglob(f"*.{end}"))
    assert files
    for path in files:
        words = other_words(re.sub(r"memory:swap", "", c_texts(path.read_text())))
        assert words == [], f"{path}: docs/words.md says what it is called instead"


def test_the_command_s_help_uses_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ctl.main(["--help"])
    said = capsys.readouterr().out
    assert "drain" in said
    assert other_words(said) == []

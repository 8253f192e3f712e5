"""The commands and scripts that documents show.

`python -m tests.docs.documents DOCUMENT BEGINNING...` prints the commands that begin so, for
scripts that run them.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from leased.manual import pages
from tests.conftest import ROOT

# Every line that they show is a command; others show output and synopses among theirs.
FOR_READERS = ("README.md", "docs/admin.md", "docs/user.md")
TYPED = {
    *("eval", "gpu-leasectl", "journalctl", "sacctmgr", "sbatch", "scancel", "scontrol", "srun"),
    *("systemctl", "ulimit"),
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def scripts(path: Path) -> list[str]:
    """The batch scripts in a document."""
    return [text for kind, text in FENCE.findall(path.read_text()) if kind == "bash"]


def indented(path: Path) -> list[str]:
    """Lines of blocks that stand behind an empty line, four or eight columns to the right."""
    return indented_in(path.read_text())


def indented_in(document: str) -> list[str]:
    text = FENCE.sub("", document)
    blocks = re.findall(r"(?<=\n\n)((?:(?: {4}| {8})\S[^\n]*\n)+)", text)
    return [line for block in blocks for line in textwrap.dedent(block).splitlines()]


def section(name: str, title: str) -> list[str]:
    """The commands below a heading of a document, for who runs them; tests/docs/test_run.py looks
    for calls of this and of shown()."""
    text = (ROOT / name).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = indented_in(f"\n{text}")
    assert lines, f"{name} has no commands below {title}"
    return lines


def shown(name: str, begin: str) -> str:
    """The command of a document that begins so, or is just that, for who runs it; without a
    comment behind it."""
    found = {line for line in commands()[name] if line.startswith(begin)}
    found = found & {begin} or found
    assert len(found) == 1, f"{name} has {sorted(found)} for {begin}"
    return re.split(r"\s{2,}#\s", found.pop())[0]


def in_sentences(name: str) -> list[str]:
    """What a document tells people to type within its sentences: code of two words and more that
    begins with a command. A message, which may begin so too, has an ellipsis for what it names."""
    found = re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / name).read_text()))
    typed = {text for text in found if text.split()[0] in TYPED and len(text.split()) > 1}
    return sorted(text for text in typed if "\N{HORIZONTAL ELLIPSIS}" not in text)


def commands() -> dict[str, list[str]]:
    """Lines of commands, by document; a script's options are lines of their own."""
    found = {name: indented(ROOT / name) for name in FOR_READERS}
    for name in FOR_READERS:
        found[name] += [line for text in scripts(ROOT / name) for line in text.splitlines()]
    found["gpu-share(7)"] = list(pages.EXAMPLES.values())
    for path in sorted((ROOT / "docs").glob("*.md")):
        name = f"docs/{path.name}"
        if name not in FOR_READERS:
            ours = [line for line in indented(path) if line.startswith("gpu-leasectl ")]
            found[name] = [line for line in ours if not re.search(r"[\[|]|[A-Z]{3}", line)]
    return {name: lines for name, lines in found.items() if lines}


if __name__ == "__main__":
    print(*(shown(sys.argv[1], begin) for begin in sys.argv[2:]), sep="\n")

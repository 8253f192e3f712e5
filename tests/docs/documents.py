"""The commands and scripts that documents show."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from leased.manual.pages import gpu_share
from tests.conftest import ROOT

# Every line that they show is a command; others show output and synopses among theirs.
FOR_READERS = ("README.md", "docs/admin.md", "docs/user.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def scripts(path: Path) -> list[str]:
    """The batch scripts in a document."""
    return [text for kind, text in FENCE.findall(path.read_text()) if kind == "bash"]


def indented(path: Path) -> list[str]:
    """Lines of blocks that stand behind an empty line, four or eight columns to the right."""
    text = FENCE.sub("", path.read_text())
    blocks = re.findall(r"(?<=\n\n)((?:(?: {4}| {8})\S[^\n]*\n)+)", text)
    return [line for block in blocks for line in textwrap.dedent(block).splitlines()]


def commands() -> dict[str, list[str]]:
    """Lines of commands, by document; a script's options are lines of their own."""
    found = {name: indented(ROOT / name) for name in FOR_READERS}
    for name in FOR_READERS:
        found[name] += [line for text in scripts(ROOT / name) for line in text.splitlines()]
    found["gpu-share(7)"] = list(gpu_share.EXAMPLES.values())
    for path in sorted((ROOT / "docs").glob("*.md")):
        name = f"docs/{path.name}"
        if name not in FOR_READERS:
            ours = [line for line in indented(path) if line.startswith("gpu-leasectl ")]
            found[name] = [line for line in ours if not re.search(r"[\[|]|[A-Z]{3}", line)]
    return {name: lines for name, lines in found.items() if lines}

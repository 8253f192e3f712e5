"""A manual page as groff_man(7) reads it: macros of man, and texts that are not taken for one.

In texts `code` is bold, as in the documents.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from leased import __version__

WIDTH = 78  # columns of a source line
# What roff would read or draw as something else. In texts a hyphen is one, in code a minus.
TEXT = {"\\": "\\e", '"': "\\(dq", "^": "\\(ha", "~": "\\(ti", "`": "\\(ga"}
CODE = TEXT | {"-": "\\-", "'": "\\(aq"}
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
WORD_OF_USAGE = re.compile(r"--?[a-zA-Z][\w-]*|[A-Z][A-Z=_]+|[a-z][\w-]+|.")


def code(text: str) -> str:
    """What is typed or printed as it stands. UnicodeEncodeError: it is not ASCII."""
    text.encode("ascii")
    return "".join(CODE.get(letter, letter) for letter in text)


def _plain(text: str) -> str:
    """A piece of a sentence. An option in it has a minus, so that it can be copied and found."""
    text.encode("ascii")
    escaped = "".join(TEXT.get(letter, letter) for letter in text)
    return OPTION.sub(lambda match: match[0].replace("-", "\\-"), escaped)


def words(text: str) -> str:
    """A sentence with `code` in it, in one line."""
    pieces = " ".join(text.split()).split("`")
    return "".join(
        f"\\fB{code(piece)}\\fR" if number % 2 else _plain(piece)
        for number, piece in enumerate(pieces)
    )


def _lines(text: str) -> list[str]:
    """A paragraph in lines of which none begins as a request of roff does."""
    folded = textwrap.wrap(words(text), WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"\\&{line}" if line[0] in ".'" else line for line in folded]


class Page:
    """The page is written from its top to its bottom; text() is what there is of it."""

    def __init__(self, name: str, number: int, summary: str) -> None:
        """summary: what apropos shows, behind the name."""
        self.file = f"{name}.{number}"
        title = f'.TH "{code(name.upper())}" {number} "" "gpu-lease {__version__}" "gpu-lease"'
        self._source = [title]
        self.section("name")
        self._source.append(f"{code(name)} \\- {words(summary)}")

    def section(self, title: str) -> None:
        self._source.append(f'.SH "{code(title.upper())}"')

    def subsection(self, title: str) -> None:
        self._source.append(f'.SS "{code(title)}"')

    def paragraph(self, text: str) -> None:
        self._source += [".PP", *_lines(text)]

    def paragraphs(self, text: str) -> None:
        """Several, with empty lines between them."""
        for each in text.split("\n\n"):
            self.paragraph(each)

    def item(self, term: str, text: str) -> None:
        """A term in roff, as words(), code() or usage() make it, and what it means."""
        self._source += [".TP", term, *_lines(text or "-")]

    def terms(self, title: str, meanings: Mapping[str, str]) -> None:
        """A section with an item for each of them, which is typed or printed as it stands."""
        self.section(title)
        for term, text in meanings.items():
            self.item(words(f"`{term}`"), text)

    def continued(self, text: str) -> None:
        """A line of its own in the paragraph or the item that was begun."""
        self._source += [".br", *_lines(text)]

    def example(self, lines: str) -> None:
        """Lines that stay as they are."""
        shown = [code(line) for line in lines.strip("\n").split("\n")]
        shown = [f"\\&{line}" if line[:1] in ".'" else line for line in shown]
        self._source += [".PP", ".RS 4", ".nf", *shown, ".fi", ".RE"]

    def usage(self, text: str) -> None:
        """How a command is written."""
        self._source += [".PP", usage(text)]

    def text(self) -> str:
        # Directly behind a heading a paragraph needs no macro, and mandoc says so.
        kept = [
            line
            for before, line in zip(["", *self._source], self._source)
            if not (line == ".PP" and before.startswith((".SH", ".SS")))
        ]
        return "\n".join(kept) + "\n"


def usage(text: str) -> str:
    """A command or an option, in one line: what is typed is bold, names of values are italic."""

    def drawn(match: re.Match[str]) -> str:
        found = match[0]
        if len(found) == 1:
            return code(found)
        return f"\\f{'I' if found.isupper() else 'B'}{code(found)}\\fR"

    return WORD_OF_USAGE.sub(drawn, " ".join(text.split()))

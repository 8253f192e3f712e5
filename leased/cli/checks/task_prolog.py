"""check: whether the site's TaskProlog leaves the interposer in LD_PRELOAD.

What it prints as `export LD_PRELOAD=...` is the LD_PRELOAD of every task, and of every batch
script. It is read here, and not run; what it starts in its turn is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from leased.base import text_file
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site

NAME = "task-prolog"
MOST_BYTES = 8 << 20  # of a program
SETS = re.compile(r"\b(?:export|unset)\s+LD_PRELOAD\b")
AT_ONCE = re.compile(r"echo\b|printf\b|print\(")  # at the begin of a line: under no condition
KEEPS = re.compile(r"LD_PRELOAD")
# What stands for the value that is there, in a shell and in other languages.
READS = re.compile(r"(?:\$\{?|(?:environ|ENV|getenv)\W+(?:get\W+)?)LD_PRELOAD")
# Of a program that is started there, which prints nothing by that.
OF_ANOTHER = re.compile(r"^\s*LD_PRELOAD=|-u\s*LD_PRELOAD")
REMEDY = "print export LD_PRELOAD=LIBRARY:$LD_PRELOAD instead, with what LD_PRELOAD is there"


def findings(site: Site) -> Iterator[Finding]:
    path = site.slurm.value("taskprolog")
    if not path:
        yield Finding(NAME, OK, "no TaskProlog changes LD_PRELOAD")
        return
    text = text_file.read(Path(path), MOST_BYTES).decode(errors="replace")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    lost = [line for line in lines if loses_ours(line)]
    reads = any(READS.search(line) for line in lines if not SETS.search(line))
    if not reads and any(AT_ONCE.match(line) for line in lost):
        words = f"TaskProlog {path} prints another LD_PRELOAD: all jobs run without a lease"
        yield Finding(NAME, FAULT, words, REMEDY)
    elif lost or any(names_it(line) for line in lines):
        words = f"TaskProlog {path} may print another LD_PRELOAD: such jobs run without a lease"
        yield Finding(NAME, WARNING, words, REMEDY)
    else:
        yield Finding(NAME, OK, f"TaskProlog {path} leaves LD_PRELOAD as it is")


def loses_ours(line: str) -> bool:
    """Whether a line sets LD_PRELOAD and names it no second time as what it was."""
    found = SETS.search(line)
    if found is None:
        return False
    return not any(_is_value(line, m.start()) for m in KEEPS.finditer(line, found.end()))


def names_it(line: str) -> bool:
    """Whether it stands there as a name alone, from which a line may be made that sets it."""
    if SETS.search(line) or OF_ANOTHER.search(line):
        return False
    return "LD_PRELOAD" in READS.sub("", line)


def _is_value(line: str, at: int) -> bool:
    """Whether LD_PRELOAD stands for its value there: a shell takes $ in single quotes as it is."""
    before = line[:at]
    quoted = before.count("'") % 2 == 1 and before.count('"') % 2 == 0
    return not (quoted and before.rstrip("{").endswith("$"))

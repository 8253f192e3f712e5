"""Run a program with shorter pauses than its own: `hurried MODULE.NAME=PAUSE... -- MODULE ...`.

Each in its own unit: for what the daemon looks at again and again, and how often: it sees the same,
sooner. And for its patience with what never answers in a test.
"""

from __future__ import annotations

import importlib
import runpy
import sys


def put(word: str) -> None:
    """Set what MODULE.NAME=PAUSE says. ValueError: there is no such pause, or it is shorter."""
    name, _, pause = word.partition("=")
    module, _, constant = name.rpartition(".")
    found = importlib.import_module(module)
    usual = getattr(found, constant, None)
    if not isinstance(usual, (int, float)) or float(pause) > usual:
        raise ValueError(f"{name} is {usual}: no pause that {pause} would shorten")
    setattr(found, constant, type(usual)(float(pause)))


def main() -> None:
    at = sys.argv.index("--")
    for word in sys.argv[1:at]:
        put(word)
    module, *arguments = sys.argv[at + 1 :]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

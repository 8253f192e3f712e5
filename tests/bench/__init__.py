"""Where the benchmarks write what they measured."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def write(name: str, measure: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Measure in a directory of its own, with a short path for sockets; the result goes to
    build/bench/NAME.json."""
    return write_as_it_comes(name, lambda place, _: measure(place))


def write_as_it_comes(
    name: str, measure: Callable[[Path, Callable[[dict[str, Any]], None]], dict[str, Any]]
) -> dict[str, Any]:
    """As write(), for what takes long: what `measure` gives the function is written at once."""
    # Not above: a framework's Python, which has not what we build, runs programs of this package.
    from tests.support.work_dir import work_dir

    result = ROOT / "build" / "bench" / f"{name}.json"
    result.parent.mkdir(parents=True, exist_ok=True)

    def known(measured: dict[str, Any]) -> None:
        result.write_text(json.dumps(measured, indent=1) + "\n")

    # Whoever ends a benchmark ends its daemons with it, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = work_dir()
    try:
        measured = measure(directory, known)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    known(measured)
    return measured

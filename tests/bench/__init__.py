"""Where the benchmarks write what they measured."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]


def write(name: str, measure: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Measure in a directory of its own, with a short path for sockets; the result goes to
    build/bench/NAME.json."""
    # Whoever ends a benchmark ends its daemons with it, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = work_dir()
    try:
        measured = measure(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    result = ROOT / "build" / "bench" / f"{name}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(measured, indent=1) + "\n")
    return measured

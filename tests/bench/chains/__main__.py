"""Chains of components on one GPU: `make bench NAME=chains`. To build/bench/chains.json; the parts
say what their figures are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.bench import write
from tests.bench.chains.parts import buffers, optimiser
from tests.bench.slices import urgent


def measure(work: Path) -> dict[str, Any]:
    return buffers.measure(work / "buffers") | {"optimiser": optimiser.measure(work)}


def main() -> int:
    urgent()
    print("On the emulated GPU:", json.dumps(write("chains", measure)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Chains of components on one GPU: `make bench NAME=chains`. To build/bench/chains.json; the parts
say what their figures are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import write_as_it_comes
from tests.bench.chains.parts import buffers, optimiser
from tests.bench.slices import urgent


def measure(work: Path, known: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    found = buffers.measure(work / "buffers")
    chains: list[dict[str, Any]] = []
    for chain in optimiser.measure(work):
        chains.append(chain)
        known(found | {"optimiser": chains})
    return found | {"optimiser": chains}


def main() -> int:
    urgent()
    print("On the emulated GPU:", json.dumps(write_as_it_comes("chains", measure)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

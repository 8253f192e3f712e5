"""What the gate costs a submitting call: `make bench NAME=gate` writes build/bench/gate.json.

A driver that does nothing stands behind the interposer, so that the difference
between a direct and a gated call is the gate's. The lease is the real daemon's.
`added_ns` is for cuLaunchKernel in one thread; `threads`: the same for so many at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "meson" / "tests" / "bench"
RESULT = ROOT / "build" / "bench" / "gate.json"
ROUNDS = 15


def measure(leased: Leased, env: dict[str, str], job: int, threads: int) -> dict[str, list[float]]:
    """{"launch": [direct, gated], "memset": [...]}, ns a call, as a job that shares the GPU."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.tenant", "--admin", str(leased.admin_socket)),
            *("--job", str(job), "--", str(BUILD / "gate_cost"), str(threads), str(ROUNDS)),
        ],
        cwd=ROOT,
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    answer: dict[str, list[float]] = json.loads(done.stdout)
    return answer


def added(pair: list[float]) -> float:
    return round(pair[1] - pair[0], 2)


def run(work: Path) -> dict[str, Any]:
    with EmulatedGpu(work / "gpu") as gpu:
        base = os.environ | gpu.env
        env = base | {"LD_LIBRARY_PATH": f"{BUILD}:{gpu.env['LD_LIBRARY_PATH']}"}
        with Leased(work / "leased", work / "run", base) as leased:
            seen = {n: measure(leased, env, n, n) for n in (1, 8)}
    direct, gated = seen[1]["launch"]
    return {
        "direct_ns": direct,
        "gated_ns": gated,
        "added_ns": added(seen[1]["launch"]),
        "memset_added_ns": added(seen[1]["memset"]),
        "threads": {str(n): added(pair["launch"]) for n, pair in seen.items()},
        "cores": os.cpu_count(),
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpul-") as directory:
        report = run(Path(directory))
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()

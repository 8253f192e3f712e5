"""`make demo-chain`: a pipeline of four steps that pass frames on the GPU by handle.

Starts an emulated GPU and gpu-leased, and runs the pipeline of `pipeline_step.py` as a job with
one shell pipe, as a batch script would. Then it compares the file of frames with what they are to
be, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

from tests.demo.pipeline_step import BRIGHTER, picture
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.chain import LIBRARY
from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]
STEP = "python -m tests.demo.pipeline_step"
FRAMES = 24


def encoded(path: Path) -> list[bytes]:
    """The bytes of each frame in the file."""
    data, found = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(zlib.decompress(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def run(leased: Leased, out: Path) -> None:
    """The job: what stands between the quotes is what a user writes into a batch script."""
    pipeline = f"{STEP} decode {FRAMES} | {STEP} brighten | {STEP} measure | {STEP} encode {out}"
    print(f"job 1: {pipeline}\n", flush=True)
    options = "memory:swap"  # as where gpu-leased-copies runs
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        tenant.command(leased.admin_socket, 1, options, "bash", "-o", "pipefail", "-c", pipeline),
        cwd=ROOT,
        env=leased.env | {"PATH": path, "GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)},
        check=True,
    )


def main() -> None:
    work = work_dir()
    try:
        with (
            EmulatedGpu(work / "gpu") as gpu,
            Leased(work / "leased", work / "run", os.environ | gpu.env) as leased,
        ):
            run(leased, work / "frames")
            found = encoded(work / "frames")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    expected = [(picture(n) + np.uint32(BRIGHTER)).tobytes() for n in range(FRAMES)]
    if found != expected:
        raise SystemExit(f"{len(found)} frames were encoded, and not all are as they should be")
    print(f"\n{FRAMES} frames have gone through 4 processes, and none was copied between them.")


if __name__ == "__main__":
    main()

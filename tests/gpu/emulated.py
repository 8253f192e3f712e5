"""Run a check on the emulated GPU, to see that it runs: its figures mean nothing there.

`python -m tests.gpu.emulated MODULE ARGUMENTS...`: for checks whose programs use the driver and
the kernels of kernels.ptx alone. Before MODULE: `--model NAME`, another model; `--devices N`, so
many.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.emugpu.server import BUILD, EmulatedGpu
from tests.gpu.build import ROOT, SOURCES


def build(directory: Path, name: str) -> bool:
    """Build a program of the driver alone into a directory for GPU_PROGRAMS. False: there is no
    compiler."""
    if shutil.which("g++") is None:
        return False
    options = json.loads((ROOT / "build/meson/meson-info/intro-buildoptions.json").read_text())
    [include] = [one["value"] for one in options if one["name"] == "driver_include"]
    command = ["g++", "-O2", "-std=c++17", "-pthread", "-isystem", include, "-x", "c++"]
    command += [str(SOURCES / f"{name}.cu"), "-x", "none", str(BUILD / "libcuda.so.1")]
    subprocess.run([*command, "-o", str(directory / name)], check=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="emu-h200-small")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    command = [sys.executable, "-m", chosen.module, *chosen.arguments]
    with (
        tempfile.TemporaryDirectory(prefix="gpul-") as directory,
        EmulatedGpu(Path(directory), chosen.model, chosen.devices) as gpu,
    ):
        return subprocess.run(command, check=False, env=os.environ | gpu.env).returncode


if __name__ == "__main__":
    raise SystemExit(main())

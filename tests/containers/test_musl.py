"""Programs of images with musl (Alpine), under the interposer: they run as they do without it, and
one that uses the GPU is told why it cannot share it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import PRELOAD

HERE = Path(__file__).parent
EMUGPU = ROOT / "tests" / "emugpu"
OPERATING_SYSTEM = 304  # CUDA_ERROR_OPERATING_SYSTEM
SYSTEM = "symbols 1 1\nno symbol 0\nthread 0\nchild 3\n"


def compile_with_musl(*arguments: str | Path) -> None:
    """With the one that this machine has; skips the test where it has none."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("there is no musl-gcc here; it is in the package musl-tools")
    command = ["musl-gcc", "-std=gnu11", "-O1", "-D_GNU_SOURCE", *map(str, arguments)]
    subprocess.run(command, check=True)


def cuda_include() -> Path:
    """The directory of cuda.h, as packaging/setup.sh finds it."""
    found = sorted((ROOT / "build/venv/lib").glob("python3*/site-packages/nvidia/cu13/include"))
    return found[0] if found else Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("musl") / "program"
    compile_with_musl(HERE / "musl_program.c", "-o", made)
    return made


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the emulated GPU's driver library, built with musl."""
    made = tmp_path_factory.mktemp("driver")
    compile_with_musl(
        *("-shared", "-fPIC", "-fvisibility=hidden", "-I", EMUGPU),
        *("-idirafter", cuda_include()),
        *sorted((EMUGPU / "abi").glob("*.c")),
        *("-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", "-o", made / "libcuda.so.1"),
    )
    return made


def run(program: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], env=env, capture_output=True, text=True, check=False)


def test_a_program_runs_as_it_does_without(program: Path) -> None:
    done = run(program, {"LD_PRELOAD": str(PRELOAD)})
    assert (done.returncode, done.stdout, done.stderr) == (0, SYSTEM, "")


def test_a_program_that_uses_the_gpu_is_told_why_it_cannot_share_it(
    program: Path, driver: Path, emulated_gpu: EmulatedGpu
) -> None:
    env = emulated_gpu.env | {"LD_LIBRARY_PATH": str(driver)}
    assert run(program, env).stdout.endswith("init 0\nallocate 0\nallocate 0\n")
    done = run(program, env | {"LD_PRELOAD": str(PRELOAD)})
    refused = f"allocate {OPERATING_SYSTEM}\n"
    assert (done.returncode, done.stdout) == (0, f"{SYSTEM}init 0\n{refused}{refused}")
    assert done.stderr.count("\n") == 1
    assert "its calls to the GPU fail: its C library is not glibc" in done.stderr
    assert "use an image that has glibc" in done.stderr

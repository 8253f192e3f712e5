"""An image of Debian 11, whose glibc (2.31) has threads and dlopen in libraries of their own. `make
test-containers` makes its root file system."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.containers import namespaces
from tests.containers.jobs import Jobs, output, took_turns
from tests.containers.namespaces import Mount
from tests.containers.test_musl import EMUGPU, cuda_include
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.slurm.leased import PRELOAD

OLD = ROOT / "build" / "containers" / "old-glibc"
JOB = ROOT / "tests" / "support" / "plain_job.py"


@pytest.fixture(scope="module")
def image() -> Path:
    """Its root file system."""
    if not OLD.is_dir():
        pytest.skip(f"there is no {OLD}; `make test-containers` makes it")
    namespaces.required()
    return OLD


@pytest.fixture(scope="module")
def driver(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emulated GPU's driver library, for that glibc."""
    assert image.is_dir()  # what does not exist needs no driver, whose compiler may lack something
    made = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    options = ("-std=gnu11", "-O1", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-shared", "-fPIC")
    places = ("-I", ROOT / "shim", "-I", EMUGPU, "-I", cuda_include())
    threads = ("-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2")
    linked = ("-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", *threads)
    old = ("-include", ROOT / "tests" / "containers" / "old_driver.h")
    sources = sorted((EMUGPU / "abi").glob("*.c"))
    words = list(map(str, ["gcc", *options, *places, *old, *sources, *linked, "-o", made]))
    subprocess.run(words, check=True)
    return made


def test_two_jobs_take_turns_in_an_older_image(
    image: Path, driver: Path, made_jobs: Jobs, emulated_gpu: EmulatedGpu
) -> None:
    env = {
        "PATH": "/usr/bin",
        "EMUGPU_DIR": "/opt/gpu",
        "GPU_LEASE_SOCKET": "/opt/run/tenant.sock",
        "LD_LIBRARY_PATH": "/opt",
        "LD_PRELOAD": "/opt/libgpulease.so",
    }
    mounts = [
        Mount(str(emulated_gpu.directory), "/opt/gpu"),
        Mount(str(made_jobs.leased.run_dir), "/opt/run"),
        Mount(str(driver), "/opt/libcuda.so.1"),
        Mount(str(PRELOAD), "/opt/libgpulease.so"),
        Mount(str(KERNELS), "/opt/kernels.ptx"),
        Mount(str(JOB), "/opt/job.py"),
    ]
    started = []
    for job in (1, 2):
        made_jobs.add(job, "tq:100ms,lock:on")
        words = ["python3", "/opt/job.py", "/opt/kernels.ptx", "32", "300", "0", "/tmp/steps"]
        start = namespaces.command(image, words, mounts=mounts, env=env)
        started.append(made_jobs.start(job, start))
    for process in started:
        assert output(process) == "right on 1 GPUs\n"
    took_turns(emulated_gpu, made_jobs, 1, 2)

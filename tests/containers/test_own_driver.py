"""A container that brings a driver library of its own (CUDA's compatibility packages, or a path of
the image's) is served, whatever file the program loads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import namespaces, roots
from tests.containers.jobs import Jobs, output
from tests.containers.namespaces import Mount
from tests.emugpu.programs import line
from tests.emugpu.server import BUILD
from tests.slurm.leased import CHECKED
from tests.support.work_dir import work_dir

COMPAT = "/opt/cuda/compat"
PLAIN = f"{COMPAT}/libcuda.so.1"
VERSIONED = f"{COMPAT}/libcuda.so.570.1"
# Where the library is, what the program asks for, and where its loader looks besides.
WAYS = {
    "by its path": (PLAIN, PLAIN, ""),
    "by the path of a version": (VERSIONED, VERSIONED, ""),
    "by name, along LD_LIBRARY_PATH": (PLAIN, "libcuda.so.1", COMPAT),
}


@pytest.fixture(scope="module")
def bare_root(root: Path) -> Iterator[Path]:
    """The root without a driver where the loader looks by itself."""
    place = work_dir()
    made = place / "root"
    shutil.copytree(root, made)
    (made / roots.DRIVER.lstrip("/")).unlink()
    yield made
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the host's"])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_served(made_jobs: Jobs, root: Path, bare_root: Path, way: str, beside: bool) -> None:
    namespaces.required()
    made_jobs.add(1, "")
    place, name, path = WAYS[way]
    gpu, run_dir = made_jobs.leased.env["EMUGPU_DIR"], str(made_jobs.leased.run_dir)
    env = {"EMUGPU_DIR": gpu} | made_jobs.given[1] | ({"LD_LIBRARY_PATH": path} if path else {})
    mounts = [Mount(same, same) for same in (gpu, run_dir, str(CHECKED))]
    mounts.append(Mount(str(BUILD / "libcuda.so.1"), place))
    words = roots.command(8, 40, name)
    start = namespaces.command(root if beside else bare_root, words, mounts=mounts, env=env)
    process = made_jobs.start(1, start, user="nobody")
    assert line(process) == "ready"
    assert made_jobs.clients() == {1: 1}
    assert output(process) == "right\n"

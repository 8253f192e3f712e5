"""submitit and a notebook's kernel, themselves, hear signals while their job waits for its turn."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.slurm.test_signals import HOLDS, MIB, submit

OPTIONS, MEMORY = "lock:on,memory:swap,tq:1", "900M"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sharing_site(slurm_conf=["SelectTypeParameters=CR_CPU_Memory"]) as found:
        yield found


def needs(*modules: str) -> None:
    """Skip where one is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"Python's {name} is not installed; make setup installs it")


def environment() -> dict[str, str]:
    """Of the job: its Python finds this checkout, and a kernel has its files here."""
    paths = [str(ROOT), str(ROOT / "build" / "meson" / "leased")]
    return {"PYTHONPATH": ":".join([*paths, os.environ.get("PYTHONPATH", "")])}


@contextmanager
def held(site: Site, name: str) -> Iterator[None]:
    """Another job has the GPU meanwhile, and goes on."""
    holder = submit(site, name, HOLDS, "tq:600")
    try:
        wait_until("the other to hold", holder.file("steps").exists)
        yield
        steps = holder.steps()
        wait_until("the holder to go on", lambda: holder.steps() > steps)
    finally:
        holder.file("end").touch()
        site.slurm.wait(holder.number)


def test_a_job_of_submitit_saves_while_it_waits(site: Site) -> None:
    """As when its time limit is near: Slurm sends the signal, and submitit's handler saves and
    requeues the job."""
    needs("submitit")
    folder = site.work / "submitit"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.slurm.submitit_program", str(folder), str(MIB)]
    env = site.slurm.env | environment()
    done = subprocess.run(
        [*command, OPTIONS, MEMORY], cwd=ROOT, env=env, check=True, capture_output=True, text=True
    )
    job = int(done.stdout)
    wait_until("it to begin", (folder / "began").exists)
    with held(site, "holder-submitit"):
        site.slurm.run("scancel", "--signal=USR2", str(job))
        wait_until("it to save", (folder / "saved").exists)
        step, right = (folder / "saved").read_text().split()
        assert (int(step) > 0, right) == (True, "True")
        wait_until("it to be requeued", lambda: site.slurm.job(job)["Restarts"] == "1")
        site.slurm.run("scancel", str(job))


def test_a_notebook_is_interrupted_while_it_waits(site: Site) -> None:
    needs("ipykernel", "jupyter_client")
    path = site.work / "notebook"
    script = Path(f"{path}.sh")
    command = f"{sys.executable} -m tests.slurm.notebook_program {path} {MIB}"
    script.write_text(f"#!/bin/sh\ncd {ROOT} || exit 9\nexec {command}\n")
    job = site.slurm.sbatch(
        *("--gres=shard:1", f"--mem={MEMORY}", f"--gpu-share={OPTIONS}", "--time=5"),
        *("-o", f"{path}.log", str(script)),
        cwd=site.work,
        env=environment(),
    )
    wait_until("it to begin", Path(f"{path}.began").exists)
    with held(site, "holder-notebook"):
        Path(f"{path}.interrupt").touch()
        wait_until("the cell to be interrupted", Path(f"{path}.interrupted").exists)
        assert Path(f"{path}.interrupted").read_text() == "KeyboardInterrupt"
    wait_until("a further cell to end", Path(f"{path}.saved").exists)
    assert Path(f"{path}.saved").read_text() == "ok"
    assert site.slurm.wait(job) == "COMPLETED"

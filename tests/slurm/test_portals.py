"""What docs/user.md shows for JupyterHub, Open OnDemand and submitit, submitted to a private Slurm.

submitit is itself. Of JupyterHub and Open OnDemand there is what they make of the document: the
script of batchspawner's template, and the words of `native`; for the notebook server stands a
program that computes on the GPU (test_launchers.py has a real kernel).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tests.docs.documents import FENCE
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.slurm.test_launchers import environment, needs
from tests.slurm.test_recipes import PROGRAM

SHOWN = [(kind, text) for kind, text in FENCE.findall((ROOT / "docs" / "user.md").read_text())]
TRAIN = """
def train(rate):
    from tests.emugpu.program_api import d, launch, ok, setup
    import os
    setup()
    ok(launch("spin", 1_000_000))
    ok(d.cuCtxSynchronize())
    return f"trained {rate} {os.environ['LD_PRELOAD']}"

"""


def block(kind: str, word: str) -> str:
    """The one block of a kind with a word in it."""
    (found,) = [text for its, text in SHOWN if its == kind and word in text]
    return str(found)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sharing_site() as made:
        # Portals pass no environment on, so a program says itself where the emulated GPU is.
        given = " ".join(f"{name}={value}" for name, value in made.slurm.extra_env.items())
        (made.work / "bin" / "own").mkdir(parents=True)
        for name in ("jupyter", "jupyterhub-singleuser"):
            own, started = (made.work / "bin" / place / name for place in ("own", ""))
            own.write_text(PROGRAM)
            started.write_text(f'#!/bin/sh\nexec env {given} {own} "$@"\n')
            for program in (own, started):
                program.chmod(0o755)
        yield made


def submit(site: Site, script: str, *words: str) -> int:
    """Through standard input, as both portals do."""
    done = subprocess.run(
        ["sbatch", "--parsable", *words],
        cwd=site.work,
        env=site.slurm.env,
        input=script,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def said_by(site: Site, job: int, log: Path) -> str:
    assert site.slurm.wait(job) == "COMPLETED", log.read_text()
    wait_until("its output", lambda: "computed" in log.read_text())
    return log.read_text()


def test_a_notebook_of_jupyterhub_shares_its_gpu(site: Site) -> None:
    hub = SimpleNamespace(JupyterHub=SimpleNamespace(), SlurmSpawner=SimpleNamespace())
    exec(block("python", "jupyterhub_config"), {"c": hub})
    assert hub.JupyterHub.spawner_class == "batchspawner.SlurmSpawner"
    # batchspawner formats a template without {{ by str.format.
    script = hub.SlurmSpawner.batch_script.format(
        homedir=site.work,
        keepvars="HOME,LANG",
        runtime=hub.SlurmSpawner.req_runtime,
        cmd=f"{site.work}/bin/jupyterhub-singleuser --ip=0.0.0.0",
    )
    job = submit(site, script)
    said = said_by(site, job, site.work / f"jupyterhub_{job}.log")
    assert re.search(
        r"^computed jupyterhub-singleuser --ip=0\.0\.0\.0 .*libgpulease\.so", said, re.M
    )


def test_an_app_of_open_ondemand_shares_its_gpu(site: Site) -> None:
    app = block("yaml", "batch_connect").replace("<%= memory %>", "50%")
    assert "<%" not in app
    words = re.findall(r'^    - "(.*)"$', app.partition("native:")[2], re.MULTILINE)
    assert len(words) == 2
    log = site.work / "ondemand.log"
    script = f"#!/bin/bash\n{site.work}/bin/jupyter lab --config=config.py\n"
    job = submit(site, script, "--export=NONE", "-D", str(site.work), "-o", str(log), *words)
    said = said_by(site, job, log)
    assert re.search(r"^computed jupyter lab --config=config\.py .*libgpulease\.so", said, re.M)


def test_a_job_of_submitit_shares_its_gpu(site: Site) -> None:
    needs("submitit")
    program = site.work / "submits.py"
    program.write_text(TRAIN + block("python", "submitit.AutoExecutor"))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=site.work,
        env=site.slurm.env | environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^trained 0\.1 .*libgpulease\.so", done.stdout, re.M), done.stdout

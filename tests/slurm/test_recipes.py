"""The batch scripts of docs/user.md run on a private Slurm, with the emulated GPU.

`python` and `jupyter` of the scripts are a program that computes on the GPU for a moment, since
what theirs would run is the reader's own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.docs.documents import scripts
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

RECIPES = scripts(ROOT / "docs" / "user.md")
PROGRAM = f"""#!{sys.executable}
import os, sys
sys.path.insert(0, {str(ROOT)!r})
{SET_UP}
ok(spin(1_000_000)); ok(d.cuCtxSynchronize())
say("computed", os.path.basename(sys.argv[0]), *sys.argv[1:], os.environ["LD_PRELOAD"])
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sharing_site() as made:
        programs = made.work / "bin"
        programs.mkdir()
        for name in ("python", "jupyter"):
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        yield made


@pytest.fixture(scope="module")
def jobs(site: Site) -> dict[str, int]:
    """All of them at once, by their names: they share the GPU."""
    return {name_of(script): submit(site, script) for script in RECIPES}


def name_of(script: str) -> str:
    found = re.search(r"--job-name=(\w+)", script)
    assert found, script
    return found[1]


def runs(script: str) -> int:
    """How many processes are to say that they have computed."""
    tasks = re.search(r"--ntasks=(\d+)", script)
    array = re.search(r"--array=(\d+)-(\d+)", script)
    elements = int(array[2]) - int(array[1]) + 1 if array else 1
    return elements * (int(tasks[1]) if tasks else 1)


def submit(site: Site, script: str) -> int:
    """As it stands, in a directory of its own."""
    place = site.work / name_of(script)
    place.mkdir()
    (place / "job.sh").write_text(script)
    path = f"{site.work / 'bin'}:{site.slurm.env['PATH']}"
    return site.slurm.sbatch("job.sh", cwd=place, env={"PATH": path})


@pytest.mark.parametrize("script", RECIPES, ids=name_of)
def test_a_recipe_runs(site: Site, jobs: dict[str, int], script: str) -> None:
    name = name_of(script)
    logs = site.work / name

    def ended() -> bool:
        return site.slurm.run("squeue", "-h", "-j", str(jobs[name])).stdout == ""

    wait_until(f"{name} to end", ended, timeout=120, step=0.2)
    said = "".join(log.read_text() for log in sorted(logs.glob("slurm-*.out"))).splitlines()
    computed = [line for line in said if line.startswith("computed ")]
    assert len(computed) == runs(script), said
    assert all("libgpulease.so" in line for line in computed)


def test_recipes_have_names_of_their_own() -> None:
    names = [name_of(script) for script in RECIPES]
    assert len(set(names)) == len(names) >= 7

"""What tests of containers share: jobs in cgroups, a Slurm, a root file system with a GPU job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import jobs, namespaces, roots
from tests.slurm.leased import Leased
from tests.slurm.site import Site, sharing_site
from tests.support import machine
from tests.support.work_dir import work_dir


@pytest.fixture
def made_jobs(leased: Leased) -> Iterator[jobs.Jobs]:
    with jobs.jobs(leased) as made:
        yield made


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A real Slurm whose jobs can have containers of namespaces."""
    namespaces.required()
    machine.open_checkout_required()
    with sharing_site(gpus=1) as made:
        yield made


@pytest.fixture(scope="package")
def root() -> Iterator[Path]:
    """A root file system with the GPU job of contained.c; open to every user."""
    place = work_dir()
    yield roots.with_job(place / "root", roots.compiled(place))
    shutil.rmtree(place, ignore_errors=True)

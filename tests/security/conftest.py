"""One real Slurm for all tests of this folder that need one: starting it takes seconds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import PLUGIN
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.machine import open_checkout_required
from tests.support.work_dir import work_dir

NOBODY = "nobody"
CONF = ["LaunchParameters=use_interactive_step", "PrologFlags=Alloc,Contain"]
# A daemon that was stopped when a job ended hears of that when it asks Slurm next.
OFTEN = ["leased.monitors.ended_jobs.EVERY_S=1"]
# Stands in front of the program that asks slurmctld, so that a test can hold it there.
GATE = """#!/bin/sh
if [ -e {here}/hold ]; then
	touch {here}/reached
	while [ -e {here}/hold ]; do sleep 0.05; done
fi
exec {real} "$@"
"""


@pytest.fixture(scope="package")
def plugin_dir() -> Iterator[Path]:
    """The plugin's files in a directory of their own."""
    here = work_dir()
    here.chmod(0o755)
    for name in ("gpu_share.so", "gpu_share_python.so"):
        shutil.copy(PLUGIN.parent / name, here)
    program = here / "gpu-lease-allocation"
    program.write_text(GATE.format(here=here, real=PLUGIN.parent / program.name))
    program.chmod(0o755)
    yield here
    shutil.rmtree(here, ignore_errors=True)


@pytest.fixture(scope="package")
def cluster(plugin_dir: Path) -> Iterator[Site]:
    """Two nodes of two GPUs each. They are one machine, so the GPUs are the same two."""
    open_checkout_required()
    plugin = plugin_dir / "gpu_share.so"
    with sharing_site(gpus=2, nodes=2, slurm_conf=CONF, plugin=plugin, hurried=OFTEN) as made:
        yield made


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    """The cluster, which is as it was before when the test is over: no job, no node drained."""
    yield cluster
    slurm = cluster.slurm
    wait_until("the jobs to be over", lambda: slurm.run("squeue", "-h").stdout == "")
    wait_until("the tenants to be gone", lambda: cluster.tenants() == [])
    cluster.nodes_are_idle()

"""Shards that stand for memory, on a real Slurm whose GPUs and shards have a type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.cli import show_gpus
from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

MIB = 1 << 20
SHARDS, EACH_MIB = 12, 16  # of a GPU of 256 MiB

# What it sees as the GPU's memory, and what two allocations answer that together are too much.
ALLOCATES = (
    SET_UP
    + """
total = ok(d.cuDeviceTotalMem(0))
say(total, *(int(d.cuMemAlloc(size)[0]) for size in (total // 2, total)))
"""
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    fence = f'[device]\nmem_per_shard = "{EACH_MIB}MiB"\n'
    with sharing_site(gpu_type="l40s", shards_per_gpu=SHARDS, leased_conf=fence) as made:
        (made.work / "allocates.py").write_text(ALLOCATES)
        yield made


@pytest.mark.parametrize("by_uuid", [False, True])
@pytest.mark.parametrize(("gres", "shards"), [("shard:l40s:4", 4), ("shard:2", 2)])
def test_a_job_has_the_memory_of_its_shards(
    site: Site, gres: str, shards: int, by_uuid: bool
) -> None:
    """by_uuid: CUDA_VISIBLE_DEVICES names the GPU so, as Slurm may from 26.05 on."""
    program = site.work / "allocates.py"
    (uuid,) = site.devices()
    visible = f"CUDA_VISIBLE_DEVICES={uuid} " if by_uuid else ""
    said = site.batch(f"cd {ROOT} && {visible}{sys.executable} {program}", f"--gres={gres}")
    assert said.split() == [str(shards * EACH_MIB * MIB), "0", "2"], said


def test_a_job_that_asks_for_more_is_told_how_many_shards_that_is(site: Site) -> None:
    done = site.run("--gres=shard:2", "--gpu-share=mem:100MiB", "true")
    assert done.returncode != 0
    assert "mem asks for 100 MiB, more than the 32.0 MiB of GPU 0 that its 2 shards" in done.stderr
    assert "ask for --gres=shard:7, or leave mem out" in done.stderr
    site.node_works()


def test_status_says_who_may_have_what(site: Site) -> None:
    job = site.slurm.sbatch("--gres=shard:l40s:3", "--wrap", "exec sleep 600", cwd=site.work)
    site.wait_for_tenant(job)
    answer: Any = ask(site.leased.admin_socket, {"op": "status"})
    (line,) = show_gpus.fences(answer)
    site.slurm.run("scancel", str(job))
    wait_until("the job to end", lambda: not site.status())
    told = f"job {job} may have 48.0 MiB"
    assert line == f"a shard of GPU 0 stands for 16.0 MiB of its memory: {told}"

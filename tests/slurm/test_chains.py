"""A chain of components in a job, which are started again with other parts of the GPU under MPS."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.chains.optimiser import KEEPS, PLAIN
from tests.conftest import ROOT
from tests.emugpu.mps_control import install
from tests.emugpu.programs import IMPORTS
from tests.mps.test_parts import HURRIED
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.chain import COMPONENT, LIBRARY
from tests.support.machine import freezer_required
from tests.support.work_dir import work_dir

# At SIGTERM both finish their item. What they pass on is read without a buffer of Python's, whose
# rest would end with them. DIRECTORY keeps where they are, and who started them with which part.
BEGINS = (
    IMPORTS
    + """
import pathlib, signal, struct
from gpu_lease.chain import HANDLE_BYTES, Chain
work, name, ends = pathlib.Path(sys.argv[1]), sys.argv[2], False
def end(*_):
    global ends
    ends = True
signal.signal(signal.SIGTERM, end)
setup()
chain, item = Chain(), struct.Struct(f"{HANDLE_BYTES}sI")
count = work / f"{name}.count"
n = int(count.read_text()) if count.exists() else 0
def done():
    global n
    n += 1
    (work / f"{name}.next").write_text(str(n))
    (work / f"{name}.next").rename(count)
with open(work / f"{name}.starts", "a") as file:
    file.write(f"{os.getppid()} {os.environ['CUDA_MPS_ACTIVE_THREAD_PERCENTAGE']}\\n")
"""
)
MAKES = """
while not ends:
    buffer = chain.alloc(MIB)
    ok(launch("fill", buffer.pointer, 1024, n)); ok(d.cuCtxSynchronize())
    os.write(1, item.pack(chain.put(buffer), n))
    done()
"""
TAKES = """
while not ends:
    handle, number = item.unpack(os.read(0, item.size))
    buffer = chain.get(handle)
    right = words(buffer.pointer, 1024) == [word(number, i) for i in range(1024)]
    if number != n or not right:
        (work / "wrong").write_text(f"item {number} came as {n}, right: {right}")
    ok(launch("spin", 2_000_000)); ok(d.cuCtxSynchronize())
    buffer.drop()
    done()
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    freezer_required()  # the chain's keeper is known by its cgroup
    place = work_dir()
    conf = f'mps_control = "{install(place)}"\n[device]\nspace = "mps"\n'
    pids: list[int] = []
    try:
        slurm_conf = ["ProctrackType=proctrack/cgroup"]
        with sharing_site(leased_conf=conf, hurried=HURRIED, slurm_conf=slurm_conf) as made:
            yield made
            pids += (int(file.read_text()) for file in made.leased.run_dir.glob("mps/*/*.pid"))
    finally:
        for pid in pids:  # it outlives the daemon
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(place, ignore_errors=True)


def starts(site: Site, name: str) -> list[list[str]]:
    """Who started it, and with how many per cent."""
    file = site.work / f"{name}.starts"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def items(site: Site) -> int:
    file = site.work / "takes.count"
    return int(file.read_text()) if file.exists() else 0


def chain(site: Site) -> Any:
    return ask(site.leased.admin_socket, {"op": "status"})["devices"][0]["chain"]


def test_components_are_started_again_and_no_item_is_lost(site: Site) -> None:
    steps = []
    for name, code in (("makes", MAKES), ("takes", TAKES)):
        (site.work / f"{name}.py").write_text(BEGINS + code)
        steps.append(f"{COMPONENT} {sys.executable} {site.work}/{name}.py {site.work} {name}")
    pipeline = " | ".join(steps)
    job = site.slurm.sbatch(
        *("--gres=shard:1", "--gpu-share=chain:video,memory:swap"),
        *("-o", str(site.work / "log")),
        *("--wrap", f"export PYTHONPATH={ROOT} GPU_LEASE_CHAIN_LIBRARY={LIBRARY}; {pipeline}"),
        cwd=site.work,
    )
    ended = (KEEPS, PLAIN)
    wait_until("a search", lambda: (chain(site) or {"why": ""})["why"] in ended, timeout=300)
    found = chain(site)
    assert found["by"] == "parts"
    assert 2 < len(found["trials"]) <= found["bound"]
    for name in ("makes", "takes"):
        (by, first), (again, second), *_ = starts(site, name)
        assert (first, second) == ("100", "50")
        assert by == again, "the same process starts it, so the daemon knows the chain by it"
    before = items(site)
    wait_until("items after the search", lambda: items(site) >= before + 3)
    assert not (site.work / "wrong").exists(), (site.work / "wrong").read_text()
    site.slurm.run("scancel", str(job))
    assert site.slurm.wait(job) == "CANCELLED"
    site.node_is_idle()

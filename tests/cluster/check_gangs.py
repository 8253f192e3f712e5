"""Jobs on both booted machines that share GPUs: MPI ranks check each other's data, by turns.

Run by `make test-cluster`. Turned on as docs/admin.md says; the daemons are those of the packages
and prove to each other by the cluster's MUNGE who they are. The ranks are started by Open MPI's
mpirun of the distribution.
"""

from __future__ import annotations

import functools
import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leased.slurm import usage_record
from tests.cluster.machine import TRACE, UNIT
from tests.cluster.site import Site
from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.ranks import Ranks, Row, halves

PROGRAMS = Path("srv/programs")  # of the jobs, on both machines
FILES = (
    *("tests/__init__.py", "tests/slurm/__init__.py", "tests/support/__init__.py"),
    *("tests/slurm/rank.py", "tests/slurm/mpi.py", "tests/support/plain_job.py"),
    "tests/emugpu/kernels.ptx",
)
PORT = 7070
HANDOFFS = 200  # of each job on each of its GPUs
SMALL, BIG = 64, 160  # MiB: two big ones do not fit on a GPU of 256
LUA = "/etc/slurm/job_submit.lua"

pytestmark = pytest.mark.timeout(1200)


@dataclass
class Gang(Ranks):
    """A job of alice's, whose files are in /tmp of each machine."""

    site: Site
    wait_s = 240.0

    def file(self, rank: int, kind: str) -> Path:
        machine = self.site.machines[self.nodes[rank]]
        return machine.root / "tmp" / f"{self.name}.{rank}.{kind}"

    @property
    def log(self) -> str:
        return self.site.output(self.number)

    def end_state(self) -> str:
        (state,) = self.site.end(self.number)
        return state

    def daemons_said(self) -> list[str]:
        return [machine.journal(UNIT)[-2000:] for machine in self.site.machines]

    def trace(self, rank: int) -> list[Row]:
        text = (self.site.machines[self.nodes[rank]].root / TRACE).read_text()
        rows = (row.split() for row in text.split("\n")[:-1])
        return [(int(d), int(p), int(s), int(e)) for d, p, s, e in rows]

    def tenants(self) -> list[dict[str, Any]]:
        """What each of its nodes' daemons says of it, where it is known."""
        said = [self.site.status(self.site.machines[node])["tenants"] for node in self.nodes]
        return [t for tenants in said for t in tenants if t["job_id"] == self.number]

    def has_had_turns(self, handoffs: int) -> bool:
        """On each of its nodes."""
        used = [each for tenant in self.tenants() for each in tenant["gpus"].values()]
        had = [each["handoffs"] for each in used]
        return len(had) == len(self.nodes) and min(had) >= handoffs

    def record(self) -> usage_record.Run:
        """What Slurm's accounting has of it, once all its nodes have said it."""
        text = ""

        def complete() -> bool:
            nonlocal text
            ((_, text),) = self.site.rows(self.number)
            return text.count(usage_record.MARK) == len(self.nodes)

        wait_until(f"the usage of job {self.number}", complete, timeout=300, step=1)
        found = usage_record.read(text)
        assert found is not None, text
        return found


def gang_command(name: str, mib: int, nodes: Sequence[int], *options: str) -> str:
    """How alice submits it: a rank on each of these nodes, by mpirun where there are several."""
    names = ",".join(f"node{node + 1}" for node in nodes)
    rank = f"python3 -m tests.slurm.rank --folder /tmp --name {name} --rounds 4 --bytes {mib << 20}"
    start = f"mpirun -n {len(nodes)} -N 1 {rank} --mpi" if len(nodes) > 1 else f"srun {rank}"
    env = f"EMUGPU_DIR=/run/emugpu PYTHONPATH=/{PROGRAMS} PYTHONDONTWRITEBYTECODE=1"
    return shlex.join(
        [
            *("sbatch", "--parsable", f"-N{len(nodes)}", f"-n{len(nodes)}", "-w", names),
            *("--gres=shard:1", "--gpu-share=lock:on,tq:200ms", "--output=/tmp/%j.out"),
            *(*options, "--wrap", f"export {env}; {start}"),
        ]
    )


def submit(
    site: Site, name: str, *options: str, mib: int = SMALL, nodes: Sequence[int] = (0, 1)
) -> Gang:
    number = int(site.as_user(gang_command(name, mib, nodes, *options)))
    return Gang(number, name, nodes, site)


def bring_programs(site: Site) -> None:
    """Those of the jobs, to both machines."""
    for machine in site.machines:
        for file in FILES:
            there = machine.root / PROGRAMS / file
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, there)


@pytest.fixture(scope="module")
def gangs(site: Site) -> Site:
    """A site that has turned it on: docs/admin.md, "Jobs on several nodes"."""
    bring_programs(site)
    for name in ("job_submit.lua", "gpu_share.lua"):
        site.head.shell(f"cp /usr/share/gpu-lease/slurm-conf/{name} /etc/slurm/")
    site.head.shell("scontrol reconfigure")
    refused = site.as_user(gang_command("refused", SMALL, (0, 1)), check=False)
    assert "a job on several nodes cannot share GPUs here" in refused
    for machine in site.machines:
        machine.configure("peers", f"port = {PORT}")
        machine.configure("limits", 'quantum_min = "100ms"')
        machine.systemctl("restart", UNIT)
        assert str(PORT) in machine.journal(UNIT)
        line = "/etc/slurm/plugstack.conf.d/gpu-lease.conf"
        machine.shell(f"sed -i 's/^optional gpu_share.so/& several_nodes=yes/' {line}")
    site.head.shell(f"sed -i 's/^-- \\(if found then gpu_share.several_nodes\\)/\\1/' {LUA}")
    for machine in site.machines:
        machine.shell("gpu-leasectl check")
    return site


def test_mpi_ranks_check_each_other_s_data_through_200_handoffs(gangs: Site) -> None:
    jobs = [submit(gangs, "a"), submit(gangs, "b")]
    for job in jobs:
        job.gets_on()
    shows_both_nodes(gangs, jobs)
    for job in jobs:
        turns = functools.partial(job.has_had_turns, HANDOFFS)
        wait_until(f"job {job.name} to have had its turns", turns, timeout=900, step=2)
    for job in jobs:
        job.ends()
    assert halves(jobs) == []
    devices = [gangs.status(machine)["devices"] for machine in gangs.machines]
    (one, two) = ({each["uuid"] for each in on} for on in devices)
    for job in jobs:
        run = job.record()
        assert sorted(run.nodes.values()) == ["node1", "node2"]
        for uuid, node in run.nodes.items():
            assert uuid in (one if node == "node1" else two)
        assert min(used["handoffs"] for used in run.gpus.values()) >= HANDOFFS
        assert [used["overruns"] for used in run.gpus.values()] == [0, 0]
    adds_up(gangs, jobs)


def shows_both_nodes(site: Site, jobs: Sequence[Gang]) -> None:
    """`status` and `mine` on the first node say what each job does on each of its nodes."""
    for job in jobs:
        first, _ = job.tenants()
        nodes = first["on_nodes"]["nodes"]
        assert list(nodes) == ["node1", "node2"]
        assert all(nodes.values()), nodes
    shown = site.head.shell("gpu-leasectl status")
    assert shown.count("node2") >= len(jobs), shown
    mine = site.as_user(f"gpu-leasectl mine {jobs[0].number}")
    assert "node2" in mine, mine


def adds_up(site: Site, jobs: Sequence[Gang]) -> None:
    """The report has each GPU of each job, and counts it once."""
    numbers = ",".join(str(job.number) for job in jobs)
    said = {
        by: json.loads(site.head.shell(f"gpu-leasectl report --json -j {numbers} --by {by}"))
        for by in ("job", "node")
    }
    of_nodes = {"node1": 0.0, "node2": 0.0}
    of_jobs = {each["name"]: each["lease_s"] for each in said["job"]["groups"]}
    for job in jobs:
        run = job.record()
        for uuid, used in run.gpus.items():
            of_nodes[run.nodes[uuid]] += used["lease_s"]
        wanted = sum(used["lease_s"] for used in run.gpus.values())
        assert of_jobs[str(job.number)] == pytest.approx(wanted)
    assert {g["name"]: g["lease_s"] for g in said["node"]["groups"]} == pytest.approx(of_nodes)
    for by in said.values():
        assert by["total"]["lease_s"] == pytest.approx(sum(of_nodes.values()))


def test_a_daemon_is_restarted_while_memory_moves_on_both_nodes(gangs: Site) -> None:
    jobs = [submit(gangs, "big-a", mib=BIG), submit(gangs, "big-b", mib=BIG)]
    for machine in (gangs.other, gangs.head):
        for job in jobs:
            job.gets_on()
        machine.systemctl("restart", UNIT)
    for job in jobs:
        job.gets_on(10)
    for job in jobs:
        job.ends(quiet=False)  # on a busy machine a restart takes long enough that it says so
    assert halves(jobs) == []


def test_a_node_that_dies_ends_its_job_and_nobody_else_waits(gangs: Site) -> None:
    """It is gone from one moment to the next, and comes back without slurmd: so it is for the
    administrator to say what Slurm has not noticed yet."""
    dies = submit(gangs, "dies", "--no-requeue")
    stays = submit(gangs, "stays", nodes=[0])
    for job in (dies, stays):
        job.gets_on()
    gangs.other.systemctl("disable", "slurmd")
    gangs.other.goes_down("reboot", "--force", "--force")
    stays.gets_on(10)
    gangs.head.shell("scontrol update nodename=node2 state=down reason=died")
    # NODE_FAIL, unless mpirun has noticed it first: that of Open MPI 5 then ends with status 0.
    print(gangs.end(dies.number), dies.log)
    assert not dies.file(0, "done").exists()
    stays.gets_on(10)
    assert [t["job_id"] for t in gangs.status(gangs.head)["tenants"]] == [stays.number]
    gangs.other.comes_up()
    gangs.other.systemctl("enable", "--now", "slurmd")
    gangs.await_idle(1)  # node1 is in use
    after = submit(gangs, "after")
    for job in (after, stays):
        job.gets_on()
    for job in (after, stays):
        job.ends(quiet=False)  # one that waits for a dead node says so

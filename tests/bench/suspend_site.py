"""The cluster on which `make bench NAME=suspend` suspends jobs, and the jobs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leased.api.client import ask
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.turns import Job
from tests.support.programs import SET_UP

MODEL = "emu-h200-small"
RANKS = 3
EACH = 50  # MiB of each of three ranks; one process has as much as they together
TURNS = 3  # of the other job, when it is to work
LOW = ("--cpus-per-task=64", "--partition=usual", "--qos=low")
HIGH = ("--cpus-per-task=64", "--partition=urgent", "--qos=high")
SHARED = "Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:1"
LIMITS = '[limits]\nquantum_min = "50ms"\ndrain = "10m"\n'

# Each turn looks at all of the memory, writes all of it anew, and says how far it is. A file
# pauses it. The other job works for as many turns as a file says.
PROGRAM = (
    SET_UP
    + """
import pathlib, time
name, size = sys.argv[1], int(sys.argv[2]) << 20
mine = name + "." + os.environ.get("SLURM_PROCID", "0")
pathlib.Path(mine + ".pid").write_text(str(os.getpid()))
p = ok(d.cuMemAlloc(size)); ok(d.cuMemsetD8(p, 1, size)); ok(d.cuCtxSynchronize())
host = int(ok(d.cuMemHostAlloc(size, 0))); turn = 1
def wait():
    if len(sys.argv) > 3:
        wanted = pathlib.Path(name + ".wanted")
        return not wanted.exists() or turn > int(wanted.read_text() or 0)
    return os.path.exists(name + ".pause")
while not os.path.exists(name + ".end"):
    if wait():
        pathlib.Path(mine + ".waits").touch()
        time.sleep(0.002)
        continue
    ok(d.cuMemcpyDtoH(host, p, size))
    assert ctypes.string_at(host, size).count(turn % 251) == size, turn
    turn += 1
    ok(d.cuMemsetD8(p, turn % 251, size)); ok(spin(2_000_000)); ok(d.cuCtxSynchronize())
    pathlib.Path(mine + ".new").write_text(str(turn)); os.rename(mine + ".new", mine + ".turn")
pathlib.Path(mine + ".done").touch()
"""
)


@dataclass
class PausingJob(Job):
    """A job that runs PROGRAM; a file pauses it."""

    def pause(self, wanted: bool) -> None:
        file = Path(f"{self.name}.pause")
        if wanted:
            file.touch()
        else:
            file.unlink()


@dataclass
class Site:
    """A cluster of one node and its daemon. other: the job that works when it is told to."""

    slurm: PrivateSlurm
    leased: Leased
    work: Path
    other: PausingJob = field(init=False)

    def submit(self, name: str, ranks: int, *place: str, more: str = "") -> PausingJob:
        """ranks: of an srun step; 0: the batch script itself runs the program."""
        mib = EACH if ranks == RANKS else EACH * RANKS
        program = f"{sys.executable} {self.work}/program.py {self.work}/{name} {mib} {more}"
        srun = f"srun --overlap -n{ranks} " if ranks else ""
        script = self.work / f"{name}.sh"
        script.write_text(f"#!/bin/sh\ncd {ROOT} || exit 9\n{srun}{program}\necho went on\n")
        number = self.slurm.sbatch(
            *("--gres=shard:1", "--mem=900M", "-n", str(max(1, ranks)), *place),
            *("--gpu-share=tq:200ms,lock:on,memory:swap", "-o", f"{self.work}/{name}.log"),
            str(script),
            cwd=self.work,
        )
        return PausingJob(number, str(self.work / name), max(1, ranks))

    def until_idle(self, job: Job) -> None:
        """Wait until it has done its last turn before a pause."""
        file = Path(f"{job.name}.0.waits")
        file.unlink(missing_ok=True)
        wait_until("it to pause", file.exists)

    def other_works(self) -> float:
        """Seconds that the other job takes for TURNS turns."""
        (turn,) = self.other.turns()
        begin = time.monotonic()
        file = Path(f"{self.other.name}.wanted")
        file.with_suffix(".new").write_text(str(turn + TURNS - 1))
        file.with_suffix(".new").rename(file)
        try:
            wait_until("the other", lambda: self.other.turns()[0] >= turn + TURNS, step=0.01)
        except TimeoutError as fault:
            status = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
            raise RuntimeError(f"{fault}: {json.dumps(status)}") from None
        return time.monotonic() - begin

    def share_on_gpu(self, job: Job) -> float:
        """The share of its bytes that is on the GPU, as its processes say."""
        tenants = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        (found,) = (t for t in tenants if t["job_id"] == job.number)
        return float(sum(found["resident_bytes"].values())) / (EACH * RANKS << 20)

    def is_suspended(self, job: Job) -> bool:
        return self.slurm.job(job.number)["JobState"] == "SUSPENDED"

    def finish(self, job: Job) -> None:
        """It ends well: RuntimeError has its own words where it does not."""
        Path(f"{job.name}.end").touch()
        if self.slurm.wait(job.number) != "COMPLETED":
            raise RuntimeError(Path(f"{job.name}.log").read_text())


@contextlib.contextmanager
def suspending_site(work: Path) -> Iterator[Site]:
    """Jobs of QOS high preempt those of QOS low; the other job is there and idle."""
    with EmulatedGpu(work / "gpu", MODEL) as gpu:
        conf = [
            "SelectTypeParameters=CR_CPU_Memory",
            "PreemptType=preempt/qos",
            "PreemptMode=SUSPEND,GANG",
            f"PartitionName=usual {SHARED} PriorityTier=1",
            f"PartitionName=urgent {SHARED} PriorityTier=2",
        ]
        slurm = PrivateSlurm(work / "slurm", env=gpu.env, slurm_conf=conf)
        slurm.plugin_args += [f"admin_socket={work}/run/admin.sock"]
        with slurm, Leased(work / "leased", work / "run", slurm.env, LIMITS) as leased:
            slurm.run("sacctmgr", "-i", "add", "qos", "low")
            slurm.run("sacctmgr", "-i", "add", "qos", "high", "preempt=low")
            (work / "program.py").write_text(PROGRAM)
            site = Site(slurm, leased, work)
            site.other = site.submit("other", 0, more="asked")
            wait_until("the other job", Path(f"{site.other.name}.0.pid").exists)
            Path(f"{site.other.name}.0.turn").write_text("1")
            site.other_works()
            yield site

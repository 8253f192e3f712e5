"""Jobs that Slurm suspends free their GPU within the grace, and go on where they were."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from leased.api.client import ask
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import compute_groups
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.grace import Grace, PatientLeased
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.turns import Job
from tests.support.machine import freezer_required, user_namespaces_required
from tests.support.programs import CHECK, SET_UP
from tests.support.together import zip_strict
from tests.support.work_dir import work_dir

MIB = 1 << 20
EACH = 16  # MiB of each rank

# Counts turns in memory: each reads all of it, then writes all of it, and says how far it is.
PROGRAM = (
    SET_UP
    + CHECK
    + f"""
import pathlib, time
name = sys.argv[1] + "." + os.environ.get("SLURM_PROCID", "0")
pathlib.Path(name + ".pid").write_text(os.readlink("/proc/self"))  # not the container's
n = {EACH} << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 1, n)); ok(d.cuCtxSynchronize())
turn = 1
while not os.path.exists(sys.argv[1] + ".end"):
    check(p, n, turn)
    turn += 1
    ok(d.cuMemsetD32(p, turn, n)); ok(spin(2_000_000)); ok(d.cuCtxSynchronize())
    pathlib.Path(name + ".new").write_text(str(turn)); os.rename(name + ".new", name + ".turn")
check(p, n, turn)
pathlib.Path(name + ".done").touch()
"""
)
LONG = PROGRAM.replace("spin(2_000_000)", "spin(5_000_000_000)")
BATCH = "#!/bin/sh\ncd {root} || exit 9\n{program}\necho went on\n"
STEP = "#!/bin/sh\ncd {root} || exit 9\nsrun --overlap -n{ranks} {program}\n"


@dataclass
class Site:
    """A cluster of one node and its daemon."""

    slurm: PrivateSlurm
    leased: Leased
    gpu: EmulatedGpu
    work: Path
    grace: Grace

    def submit(
        self,
        name: str,
        memory: str,
        ranks: int = 0,
        *more: str,
        container: str = "",
        text: str = PROGRAM,
    ) -> Job:
        """ranks: of an srun step; 0: the batch script itself runs the program.

        container: the words that start one. text: of the program.
        """
        file = self.work / f"{name}.py"
        file.write_text(text)
        program = f"{container} {sys.executable} {file} {self.work}/{name}"
        script = self.work / f"{name}.sh"
        script.write_text(
            (STEP if ranks else BATCH).format(root=ROOT, program=program, ranks=ranks)
        )
        number = self.slurm.sbatch(
            *("--gres=shard:1", "--mem=900M", "-n", str(max(1, ranks)), *more),
            *(f"--gpu-share=tq:200ms,lock:on,memory:{memory}",),
            *("-o", f"{self.work}/{name}.log", str(script)),
            cwd=self.work,
        )
        return Job(number, str(self.work / name), max(1, ranks))

    def free(self) -> int:
        return int(self.gpu.stats()["devices"][0]["free"])

    def tenant(self, job: Job) -> dict[str, Any]:
        tenants = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        found: dict[str, Any] = next(t for t in tenants if t["job_id"] == job.number)
        return found

    def suspend(self, job: Job) -> None:
        """Slurm announces it, and stops the job when the grace ends."""
        self.grace.begin()
        self.slurm.run("scontrol", "suspend", str(job.number))

    def suspend_until_it_frees(self, job: Job) -> None:
        """Its memory leaves within the grace, and then it is stopped."""
        full = self.free()
        self.suspend(job)
        wait_until("its memory to leave", lambda: self.free() - full >= EACH * MIB * 99 // 100)
        self.grace.end()
        wait_until("it to be stopped", job.is_stopped)

    def resume(self, job: Job) -> None:
        self.slurm.run("scontrol", "resume", str(job.number))

    def finish(self, job: Job) -> None:
        Path(f"{job.name}.end").touch()
        assert self.slurm.wait(job.number) == "COMPLETED", Path(f"{job.name}.log").read_text()
        assert all(Path(f"{job.name}.{rank}.done").exists() for rank in range(job.ranks))


def started(work: Path, proctrack: str, stack: contextlib.ExitStack, *lines: str) -> Site:
    """The cluster, its daemon and the GPU. lines: more of slurm.conf."""
    gpu = stack.enter_context(EmulatedGpu(work / "gpu"))
    grace = Grace(work / "grace-over")
    conf = [
        "SelectTypeParameters=CR_CPU_Memory",
        f"ProctrackType=proctrack/{proctrack}",
        "PreemptType=preempt/qos",
        "PreemptMode=SUSPEND,GANG",
        *lines,
    ]
    slurm = PrivateSlurm(work / "slurm", env=gpu.env, slurm_conf=conf, slurmd_env=grace.slurmd_env)
    slurm.plugin_args += [f"admin_socket={work}/run/admin.sock"]
    extra = '[limits]\nquantum_min = "50ms"\ndrain = "10m"\n'
    stack.enter_context(slurm)
    leased = stack.enter_context(PatientLeased(work / "leased", work / "run", slurm.env, extra))
    stack.callback(grace.end)
    return Site(slurm, leased, gpu, work, grace)


@pytest.fixture(scope="module", params=["linuxproc", "cgroup"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "cgroup":
        freezer_required()
    work = work_dir()
    try:
        with contextlib.ExitStack() as stack:
            yield started(work, request.param, stack)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.mark.parametrize(
    ("ranks", "memory"),
    [(0, "swap"), (1, "managed"), (3, "swap")],
    ids=["batch-swap", "step-managed", "ranks-swap"],
)
def test_a_suspended_job_frees_its_gpu_within_the_grace(
    site: Site, ranks: int, memory: str
) -> None:
    """Slurm stops it when that is over, from then on nothing of it can leave."""
    job = site.submit(f"one-{memory}-{ranks}", memory, ranks)
    job.gets_on()
    full = site.free()
    site.suspend(job)
    wait_until("it to be parked", lambda: site.tenant(job)["parked"] is not None)
    wait_until("its lease to end", lambda: site.tenant(job)["state"] == "parked")
    data = max(1, ranks) * EACH * MIB
    wait_until("its memory to leave", lambda: site.free() - full >= data - data // 100)
    site.grace.end()
    wait_until("it to be stopped", job.is_stopped)
    turns = job.turns()  # a rank may have been about to say how far it is
    other = site.submit(f"two-{memory}-{ranks}", memory)
    other.gets_on()
    assert job.turns() == turns
    site.finish(other)
    site.resume(job)
    job.gets_on()
    site.finish(job)


def test_a_job_is_suspended_in_mid_kernel(site: Site) -> None:
    """Its kernels stand still and its memory leaves before they end; they go on where they were."""
    ranks = 2
    job = site.submit("long", "swap", ranks, text=LONG)

    def kernels(stopped: bool) -> bool:
        """Whether each rank has one that runs, or that is stopped."""
        groups = [group for group in compute_groups(site.gpu) if group["queued"]]
        return len(groups) == ranks and all(bool(g["stopped"]) == stopped for g in groups)

    wait_until("kernels", lambda: kernels(stopped=False))
    full = site.free()
    site.suspend(job)
    wait_until("their stop", lambda: kernels(stopped=True))
    data = ranks * EACH * MIB
    wait_until("its memory to leave", lambda: site.free() - full >= data - data // 100)
    assert kernels(stopped=True)
    site.grace.end()
    wait_until("it to be stopped", job.is_stopped)
    assert kernels(stopped=True)
    turns = job.turns()
    site.resume(job)
    site.finish(job)
    assert all(now > then for now, then in zip_strict(job.turns(), turns))


CONTAINERS = {
    "pids": "unshare --pid --fork",
    "pids-second": "unshare --pid --fork sh -c '\"$@\"; true' sh",
    "users": "unshare --user --map-user=1000",
    "users-pids": "unshare --user --map-root-user --pid --fork",
}


@pytest.mark.parametrize(
    ("kind", "ranks"),
    [("pids", 0), ("pids-second", 1), ("users", 0), ("users-pids", 1)],
    ids=["pids-batch", "pids-second-step", "users-batch", "users-pids-step"],
)
def test_a_suspended_container_frees_its_gpu_within_the_grace(
    site: Site, kind: str, ranks: int
) -> None:
    """In its namespaces slurmstepd is shown as process 0, or as another user's."""
    if kind.startswith("users"):
        user_namespaces_required()
    job = site.submit(f"{kind}-{ranks}", "swap", ranks, container=CONTAINERS[kind])
    job.gets_on()
    site.suspend_until_it_frees(job)
    site.resume(job)
    job.gets_on()
    site.finish(job)


def test_a_job_that_is_resumed_at_once_gets_on(site: Site) -> None:
    """Its processes are stopped for a moment only, shorter than between two looks at all jobs."""
    job = site.submit("briefly", "swap")
    job.gets_on()
    for _ in range(3):
        site.suspend(job)
        wait_until("it to be parked", lambda: site.tenant(job)["parked"] is not None)
        site.grace.end()
        site.resume(job)
        job.gets_on()
    site.finish(job)


@contextlib.contextmanager
def step_with_a_terminal(site: Site, name: str) -> Iterator[tuple[Job, IO[bytes]]]:
    """A job that runs PROGRAM by `srun --pty`, and where to type."""
    (site.work / "program.py").write_text(PROGRAM)
    options = ("-J", name, "--gres=shard:1", "--mem=900M", "--gpu-share=memory:swap", "--pty")
    program = (sys.executable, f"{site.work}/program.py", f"{site.work}/{name}")
    said = site.work / f"{name}.log"
    process = subprocess.Popen(  # script has a terminal for it
        ["script", "-qefc", shlex.join(["srun", *options, *program]), str(said)],
        cwd=ROOT,
        env=site.slurm.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None

    def found() -> list[str]:
        return site.slurm.run("squeue", "-h", "-n", name, "-o", "%A").stdout.split()

    try:
        wait_until("the job", lambda: bool(found()))
        yield Job(int(found()[0]), str(site.work / name), 1), process.stdin
        assert process.wait(120) == 0, said.read_text()
    finally:
        process.kill()
        process.communicate()


def test_a_step_with_a_terminal_frees_its_gpu_too(site: Site) -> None:
    """Its process leads a session, so that Ctrl-Z stops it no more than without the interposer."""
    with step_with_a_terminal(site, "terminal") as (job, terminal):
        job.gets_on()
        terminal.write(b"\x1a")
        terminal.flush()
        job.gets_on()
        site.suspend_until_it_frees(job)
        other = site.submit("beside", "swap")
        other.gets_on()
        site.finish(other)
        site.resume(job)
        job.gets_on()
        site.finish(job)

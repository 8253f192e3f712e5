"""memory:swap under a real Slurm: jobs on the emulated GPU that move their memory by turns."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.conftest import JOB, ROOT
from tests.copies.keeper import Keeper
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.cgroups import memory_cgroup
from tests.support.swap_programs import PROGRAM
from tests.support.work_dir import work_dir

MIB = 1 << 20
SWAP = "--gpu-share=memory:swap,tq:200ms"
# Of a device of 256 MiB a job may have about 250, and so needs as much of the host.
ENOUGH = "--mem=400M"
DEFAULT_MIB = 150
SLURM_CONF = ["SelectTypeParameters=CR_CPU_Memory", f"DefMemPerNode={DEFAULT_MIB}"]
CONFIG = '[limits]\nquantum_min = "50ms"\n'
JOB_S = 120.0
STEPS = 8  # of a job; with 200 MiB each takes a tenth of a second
NO_ROOM = "there is no host memory for a copy (a larger --mem gives more)"
CONTEXTS_BYTES = 8 * MIB  # of a few processes; each takes 1 MiB
REFUSED = (
    "gpu-share: memory:swap may need 0.2 GiB of host memory besides what its programs need "
    "themselves, and this step has {} GiB in all; use --mem=2G (for srun too), or mem:SIZE to have "
    "less of the GPU"
)


@dataclass
class Job:
    """A job that was submitted. results: what each of its processes writes at its end."""

    job_id: int
    log: Path
    results: list[Path]


@dataclass
class Site:
    """A cluster of one node with two GPUs, where memory counts and jobs may swap."""

    slurm: PrivateSlurm
    leased: Leased
    gpu: EmulatedGpu
    work: Path

    def sbatch(self, name: str, script: str, *arguments: str) -> tuple[int, Path]:
        """Submit a batch script; its job and its log."""
        file, log = self.work / f"{name}.sh", self.work / f"{name}.log"
        file.write_text(f"#!/bin/sh\ncd {ROOT} || exit 9\n{script}\n")
        job = self.slurm.sbatch(
            *("--gres=shard:1", *arguments, "-J", name, "-o", str(log), str(file)), cwd=self.work
        )
        return job, log

    def compute(
        self,
        name: str,
        mib: int,
        *,
        steps: int = STEPS,
        tasks: int = 1,
        piece_mib: int = 16,
        until: str = "",
        options: Sequence[str] = (SWAP,),
    ) -> Job:
        """A job that computes on so many MiB in each task, by turns; tasks are one step.

        until: the name of another one, before whose result is there it does not end.
        """
        words = f"{sys.executable} {JOB} --bytes {mib * MIB} --steps {steps} --rounds 2"
        words += f" --piece {piece_mib * MIB}"
        words += f" --until {self.work}/{until}.0" if until else ""
        words += f" --pause-ms 20 --result {self.work}/{name}.${{SLURM_PROCID:-0}}"
        step = f"exec srun -n{tasks} sh -c 'exec {words}'" if tasks > 1 else f"exec {words}"
        job, log = self.sbatch(name, step, f"-n{tasks}", ENOUGH, *options, "--time=5")
        return Job(job, log, [self.work / f"{name}.{task}" for task in range(tasks)])

    def used(self, job: Job) -> dict[str, dict[str, Any]]:
        """Wait for its end: COMPLETED, all data right. Its usage by device, from sacct."""
        state = self.slurm.wait(job.job_id, timeout=JOB_S)
        assert state == "COMPLETED", job.log.read_text()
        assert all(json.loads(result.read_text())["checksum_ok"] for result in job.results)
        found: dict[str, dict[str, Any]] = self.slurm.accounting(job.job_id, usage=True).usage[
            "gpus"
        ]
        return found

    def pids(self, job: Job) -> list[int]:
        """Its processes that use the GPU."""
        mark = f"SLURM_JOB_ID={job.job_id}".encode()
        found = []
        for process in self.gpu.stats()["processes"]:
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{process['pid']}/environ").read_bytes()
                if process["alive"] and mark in environ.split(b"\0"):
                    found.append(int(process["pid"]))
        return found

    def bytes_out(self) -> int:
        """What has left the first device."""
        return int(self.gpu.stats()["devices"][0]["out_bytes"])

    def has_moved(self, before: int) -> bool:
        return self.bytes_out() > before

    def settled(self, job: Job, mib: int) -> list[int]:
        """Wait until it has so much on the first device, and the daemon knows that from what the
        driver takes for contexts, which it keeps free for jobs to come. Its processes."""

        def there() -> bool:
            answer = ask(self.leased.admin_socket, {"op": "status"})
            has = [t["resident_bytes"] for t in answer["tenants"] if t["job_id"] == job.job_id]
            known = answer["devices"][0]["overhead_bytes"] < CONTEXTS_BYTES
            return known and sum(sum(sizes.values()) for sizes in has) >= mib * MIB

        wait_until(f"job {job.job_id} to have memory", there)
        return self.pids(job)

    def all_is_free(self) -> None:
        """No process is left on a device, no memory, no tenant; the node takes jobs."""
        wait_until(
            "empty devices",
            lambda: all(d["free"] == d["memory"] for d in self.gpu.stats()["devices"]),
        )
        wait_until(
            "no tenant", lambda: not ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        )
        done = self.slurm.run("srun", "--gres=shard:1", "true", check=False)
        assert done.returncode == 0, done.stderr
        wait_until("the node to be idle", lambda: self.slurm.node_state() == "idle")


@contextlib.contextmanager
def swapping_site(
    config: str = CONFIG,
    slurm_conf: Sequence[str] = (),
    devices: int = 2,
    cgroup_conf: Sequence[str] = (),
) -> Iterator[Site]:
    work = work_dir()
    with EmulatedGpu(work / "gpu", devices=devices) as gpu:
        slurm = PrivateSlurm(
            work / "slurm",
            gpus=devices,
            env=gpu.env,
            slurm_conf=[*SLURM_CONF, *slurm_conf],
            cgroup_conf=cgroup_conf,
        )
        slurm.plugin_args += [f"admin_socket={work}/run/admin.sock", "tq_min=50ms"]
        with slurm, Leased(work / "leased", work / "run", slurm.env, config) as leased:
            (work / "out").mkdir()
            yield Site(slurm, leased, gpu, work / "out")
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with swapping_site() as made:
        yield made


def test_two_jobs_of_which_one_fits_take_turns(site: Site) -> None:
    first = site.compute("first", 200, until="second")
    site.settled(first, 200)
    used = [site.used(job) for job in (first, site.compute("second", 200))]
    assert len({uuid for one in used for uuid in one}) == 1
    figures = [one for by_device in used for one in by_device.values()]
    assert sum(one["handoffs"] for one in figures) >= 2
    assert all(one["moved_bytes"] >= 100 * MIB for one in figures), "as sacct tells"
    site.all_is_free()


def test_processes_of_one_step_swap_together(site: Site) -> None:
    tasks = site.compute("tasks", 100, tasks=2, until="alone")
    site.settled(tasks, 200)
    used = [site.used(job) for job in (tasks, site.compute("alone", 200))]
    for (figures,) in (by_device.values() for by_device in used):
        assert figures["moved_bytes"] >= 100 * MIB
        assert figures["peak_bytes"] >= 200 * MIB, "of all its processes"
    site.all_is_free()


# One process with memory on two devices, which looks at both at each turn. It goes on until the
# other one has had its turns too, so that neither computes alone for long.
GANG = (
    PROGRAM
    + """
import json, pathlib
SIZE, SEED = 160 * MIB, int(sys.argv[1])
sides = []
for n in (0, 1):
    context = ok(d.cuDevicePrimaryCtxRetain(n))
    ok(d.cuCtxSetCurrent(context))
    module = ok(d.cuModuleLoadData(open(sys.argv[3], "rb").read() + b"\\0"))
    functions = {name: ok(d.cuModuleGetFunction(module, name.encode())) for name in kernel}
    sides.append((context, functions, ok(d.cuMemAlloc(SIZE))))
mine, others = pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[5])
turn = 0
while turn < 8 or not others.exists():
    for n, (context, kernel, p) in enumerate(sides):
        ok(d.cuCtxSetCurrent(context))
        if turn:
            check(p, SIZE, SEED + 2 * turn + n - 2)
        fill(p, SIZE, SEED + 2 * turn + n)
        ok(spin(40_000_000)); ok(d.cuCtxSynchronize())
    turn += 1
    if turn == 8:
        mine.touch()
for n, (context, _, p) in enumerate(sides):
    ok(d.cuCtxSetCurrent(context))
    check_all(p, SIZE, SEED + 2 * (turn - 1) + n)
pathlib.Path(sys.argv[2]).write_text(json.dumps({"checksum_ok": True}))
"""
)


def test_both_devices_of_a_gang_move(site: Site) -> None:
    """Slurm 22.05 gives a job the shards of one GPU only. So each job registers the second one
    itself, as a step on it would (tests.support.tenant)."""
    program = site.work / "gang.py"
    program.write_text(GANG)
    jobs = []
    for n, other in ((1, 2), (2, 1)):
        result = site.work / f"gang{n}.0"
        words = f"--admin {site.leased.admin_socket} --gpus 0,1 -- {sys.executable} {program}"
        script = "export CUDA_VISIBLE_DEVICES=0,1\n"
        script += f"exec {sys.executable} -m tests.support.tenant --job $SLURM_JOB_ID {words}"
        script += f" {n * 1000} {result} {KERNELS} {site.work}/turns{n} {site.work}/turns{other}"
        job, log = site.sbatch(f"gang{n}", script, "--mem=1G", SWAP)
        jobs.append(Job(job, log, [result]))
    for used in [site.used(job) for job in jobs]:
        assert len(used) == 2
        assert all(figures["moved_bytes"] >= 100 * MIB for figures in used.values())
    site.all_is_free()


def stop_in_mid_swap(site: Site, pid: int) -> None:
    """Stop a process while its job's memory and another's change places."""
    for _ in range(50):
        before = site.bytes_out()
        wait_until("a swap", functools.partial(site.has_moved, before), step=0.001)
        os.kill(pid, signal.SIGSTOP)
        if site.bytes_out() - before < 100 * MIB:
            return
        os.kill(pid, signal.SIGCONT)  # we were late: most of it had moved already
    raise AssertionError("no swap was caught in the middle")


def test_a_job_that_is_killed_in_mid_swap_leaves_the_device_to_the_other(site: Site) -> None:
    killed = site.compute("killed", 200, until="nobody")
    (pid,) = site.settled(killed, 200)
    other = site.compute("other", 200, until="was-killed")
    wait_until("both processes", lambda: len(site.pids(other)) == 1)
    stop_in_mid_swap(site, pid)
    assert site.pids(killed) == [pid]
    site.slurm.run("scancel", "--signal=KILL", str(killed.job_id))
    assert site.slurm.wait(killed.job_id) in {"CANCELLED", "FAILED"}
    (site.work / "was-killed.0").touch()
    site.used(other)
    site.all_is_free()


# -- host memory ------------------------------------------------------------------


TOO_LITTLE = {
    "--mem": (["--mem=100M"], "0.1"),
    "--mem-per-cpu": (["--mem-per-cpu=50M", "-c2"], "0.1"),
    "--mem-per-cpu of several tasks": (["--mem-per-cpu=50M", "-n4"], "0.2"),
    "DefMemPerNode": ([], "0.1"),
}


@pytest.mark.parametrize("case", TOO_LITTLE)
def test_a_job_with_too_little_memory_is_refused_on_the_node(site: Site, case: str) -> None:
    arguments, has = TOO_LITTLE[case]
    done = site.slurm.run("srun", "--gres=shard:1", SWAP, *arguments, "true", check=False)
    assert done.returncode != 0
    assert REFUSED.format(has) in done.stderr
    job, log = site.sbatch("little", "true", SWAP, *arguments)
    assert site.slurm.wait(job) == "FAILED"
    assert log.read_text().count(REFUSED.format(has)) == 1
    site.all_is_free()


ENOUGH_OF_IT = {
    "--mem": [ENOUGH],
    "--mem-per-cpu": ["--mem-per-cpu=200M", "-c2"],
    "all of the node": ["--mem=0"],
    "less of the GPU": ["--mem=100M", "--gpu-share=memory:swap,mem:64MiB"],
}


@pytest.mark.parametrize("case", ENOUGH_OF_IT)
def test_a_job_with_enough_memory_may_swap(site: Site, case: str) -> None:
    done = site.slurm.run("srun", "--gres=shard:1", SWAP, *ENOUGH_OF_IT[case], "true", check=False)
    assert done.returncode == 0, done.stderr


def test_a_step_with_too_little_memory_is_refused_and_its_job_goes_on(site: Site) -> None:
    """Slurm limits a step to its own --mem, within its job's."""
    steps = "srun --mem=60M echo small\nsrun --mem=0 echo all of it\nsrun echo the same"
    job, log = site.sbatch("steps", steps, SWAP, ENOUGH)
    assert site.slurm.wait(job) == "COMPLETED"
    said = log.read_text()
    assert REFUSED.format("0.1") in said
    assert [said.count(word) for word in ("small\n", "all of it\n", "the same\n")] == [0, 1, 1]
    site.all_is_free()


def test_a_step_that_brings_more_gpus_needs_more_memory(site: Site) -> None:
    words = f"--admin {site.leased.admin_socket} --gpus 0,1 -- echo both"
    script = f"exec {sys.executable} -m tests.support.tenant --job $SLURM_JOB_ID {words}"
    before = site.leased.config.read_text()
    site.leased.config.write_text(before + 'swap_host = "300MiB"\n')
    ask(site.leased.admin_socket, {"op": "reload"})
    try:
        job, log = site.sbatch("wider", script, SWAP, ENOUGH)
        assert site.slurm.wait(job) == "FAILED"
        assert (
            "this node has 0.3 GiB for that, of which other jobs may need 0.0 GiB"
            in log.read_text()
        )
    finally:
        site.leased.config.write_text(before)
        ask(site.leased.admin_socket, {"op": "reload"})
    site.all_is_free()


@contextlib.contextmanager
def limited_address_space(pid: int, mib: int) -> Iterator[None]:
    """For a while a running process may map only so much more."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    most = pages * os.sysconf("SC_PAGE_SIZE") + mib * MIB
    resource.prlimit(pid, resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_AS, before)


def test_memory_for_which_the_host_has_no_room_stays_and_others_use_the_rest(site: Site) -> None:
    # Together they have more than the GPU, but by less than limited's last piece, of 16 MiB.
    limited = site.compute("limited", 160, piece_mib=48, until="free-has-ended")
    (pid,) = site.settled(limited, 160)
    with limited_address_space(pid, 40):
        used = [site.used(site.compute("free", 100))]
        assert not limited.results[0].exists(), "it did not end before"
    (site.work / "free-has-ended.0").touch()
    used.append(site.used(limited))
    figures = [one for by_device in used for one in by_device.values()]
    assert sum(one["handoffs"] for one in figures) >= 2
    said = limited.log.read_text()
    assert NO_ROOM in said
    assert "memory stays on device" in said
    site.all_is_free()


def test_copies_take_no_more_of_the_host_than_they_have(site: Site) -> None:
    """So a job that has what it was told to ask for is never killed for it, in whatever sizes
    it allocates."""
    # Copies, a piece more, an eighth that is left free, and what the program takes.
    with memory_cgroup(200 + 80) as group:
        tight = site.compute("tight", 200, piece_mib=8, until="beside")
        (pid,) = site.settled(tight, 200)
        (group / "cgroup.procs").write_text(str(pid))
        used = [site.used(site.compute("beside", 200)), site.used(tight)]
    assert all(f["moved_bytes"] >= 100 * MIB for by_device in used for f in by_device.values())
    site.all_is_free()


# Needs hardly any host memory of its own, at its end neither, which is when a file is there.
FRUGAL = (
    PROGRAM
    + """
import json, pathlib
SIZE = 200 * MIB
p = ok(d.cuMemAlloc(SIZE))
turn = 0
while not os.path.exists(sys.argv[1] + ".end"):
    if turn: check(p, SIZE, turn - 1)
    fill(p, SIZE, turn); ok(spin(40_000_000)); ok(d.cuCtxSynchronize())
    turn += 1
check(p, SIZE, turn - 1)
pathlib.Path(sys.argv[1]).write_text(json.dumps({"checksum_ok": True}))
"""
)


def frugal(site: Site, name: str, *arguments: str) -> Job:
    """A job that runs FRUGAL until it is told to end."""
    program, result = site.work / f"{name}.py", site.work / f"{name}.0"
    program.write_text(FRUGAL)
    words = f"cd {ROOT} && exec {sys.executable} {program} {result}"
    return Job(*site.sbatch(name, words, *arguments), [result])


def tell_to_end(job: Job) -> None:
    Path(f"{job.results[0]}.end").touch()


def test_a_job_without_room_in_its_cgroup_is_not_killed_for_its_copies(site: Site) -> None:
    """It keeps its memory on the device; who needs the room waits for its end."""
    with memory_cgroup(60) as group:
        tight = frugal(site, "frugal", ENOUGH, SWAP)
        (pid,) = site.settled(tight, 200)
        (group / "cgroup.procs").write_text(str(pid))
        roomy = site.compute("roomy", 200, steps=2)
        wait_until("it to have no room", lambda: NO_ROOM in tight.log.read_text())
        tell_to_end(tight)
        site.used(tight)
        site.used(roomy)
    site.all_is_free()


def test_a_job_swaps_more_than_its_mem_and_lives(site: Site) -> None:
    """Where the node has host memory for it nobody says a word about memory."""

    def said() -> dict[str, Any]:
        return ask(site.leased.admin_socket, {"op": "status"})

    def copies(job: int) -> int:
        return sum(t["copies_bytes"] for t in said()["tenants"] if t["job_id"] == job)

    with Keeper(site.leased.run_dir), memory_cgroup(60) as group:
        wait_until("the daemon to find the keeper", lambda: said()["copies"]["kept"])
        small = frugal(site, "small", "--mem=100M", "--gpu-share=tq:200ms")
        (pid,) = site.settled(small, 200)
        (group / "cgroup.procs").write_text(str(pid))
        other = site.compute("other", 200, steps=2)
        wait_until("more than its --mem to leave", lambda: copies(small.job_id) > 100 * MIB)
        tell_to_end(small)
        site.used(other)
        site.used(small)
        assert "no host memory" not in small.log.read_text()
        site.all_is_free()
        wait_until("all of it to be given back", lambda: not said()["copies"]["taken_bytes"])


def test_many_processes_start_beside_memory_that_is_swapped(site: Site) -> None:
    """Their contexts need memory that another job has taken up to the brim."""
    full = site.compute("full", 240, until="many")
    site.settled(full, 240)
    many = site.compute("many", 8, steps=2, tasks=6, piece_mib=2)
    for job in (many, full):
        site.used(job)
    site.all_is_free()

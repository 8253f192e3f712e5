"""A job that Slurm requeues goes on on another node where it was: a real Slurm, and CRIU."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.saving.test_on_gpu import PROGRAM
from tests.saving.test_runner import COUNTS, ROOT, needs_criu
from tests.slurm.cluster import Machine, PrivateSlurm
from tests.slurm.leased import Leased, config_text
from tests.slurm.processes import wait_until
from tests.support.own_files import own_files
from tests.support.work_dir import work_dir


@pytest.fixture
def work() -> Iterator[Path]:
    made = work_dir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@needs_criu
@pytest.mark.long
@pytest.mark.parametrize("by", ["scontrol requeue", "checkpoint --requeue"])
def test_a_requeued_job_goes_on_on_the_other_node(work: Path, by: str) -> None:
    orders, place, out = work / "orders", work / "saved", work / "out"
    orders.mkdir()
    ctl = f"{sys.executable} -m leased.cli.ctl"
    script = work / "script"
    script.write_text(
        f"#!/bin/sh\ncd {ROOT}\necho on $SLURMD_NODENAME\n"
        f"exec {ctl} run --checkpoint {place} -- {sys.executable} -c '{COUNTS}' 4 {orders}\n"
    )
    with PrivateSlurm(work / "slurm", nodes=2, plugin=None) as slurm:
        first, second = slurm.layout.node_names

        def counted(n: int) -> None:
            wait_until(f"count {n}", lambda: f"count {n} " in out.read_text())

        job = slurm.sbatch(
            *("--requeue", "--open-mode=append", f"--nodelist={first}", f"--output={out}"),
            str(script),
        )
        wait_until("its output", out.exists)
        (orders / "0").touch()
        counted(1)
        if by == "scontrol requeue":
            slurm.run("scontrol", "requeue", str(job))
        else:
            slurm.run(*ctl.split(), "checkpoint", str(job), str(place), "--requeue", cwd=ROOT)
        wait_until("it to wait", lambda: slurm.job(job)["JobState"] == "PENDING")
        assert (place / "complete" / "checkpoint.json").exists()
        update = (f"jobid={job}", f"reqnodelist={second}", "starttime=now+3")
        slurm.run("scontrol", "update", *update)
        for n in (1, 2, 3):
            (orders / str(n)).touch()
        assert slurm.wait(job) == "COMPLETED", out.read_text()
    said = out.read_text()
    assert re.findall(r"^on (\S+)$", said, re.MULTILINE) == [first, second]
    assert [int(n) for n in re.findall(r"^count (\d) ", said, re.MULTILINE)] == [0, 1, 2, 3]
    assert len(set(re.findall(r"^count \d (\d+)$", said, re.MULTILINE))) == 1


PREEMPTS = (
    *("KillWait=120", "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"),
    "PartitionName=urgent Nodes=ALL PriorityTier=9 State=UP",
    "PartitionName=low Nodes=ALL PriorityTier=2 GraceTime=1 State=UP",
)
SIZE = (96 + 64) << 20  # what PROGRAM has on its GPU


@contextlib.contextmanager
def two_nodes(work: Path) -> Iterator[tuple[PrivateSlurm, EmulatedGpu, list[Leased]]]:
    """Each has a daemon and files of its own, as two machines. The GPUs of both are one driver's,
    which keeps the checkpoints: a driver of a card has them in the processes."""
    here, places = work / "here", [work / "node0", work / "node1"]
    for place in (here, *places):
        (place / "run").mkdir(parents=True)
    within = [own_files(place, here) for place in places]
    with (
        EmulatedGpu(work / "gpu", "emu-h200-medium", devices=2) as gpu,
        contextlib.ExitStack() as s,
    ):
        slurm = PrivateSlurm(
            *(work / "slurm",),
            nodes=2,
            gpus=2,
            slurm_conf=PREEMPTS,
            machines=[Machine([f"admin_socket={here}/run/admin.sock"], gpu.env, w) for w in within],
            env={"LD_LIBRARY_PATH": gpu.env["LD_LIBRARY_PATH"]},
        )
        s.enter_context(slurm)
        daemons = []
        for name, place, before in zip(slurm.layout.node_names, places, within):
            env = slurm.env | gpu.env | slurm.node_env(name)
            daemon = Leased(place, place / "run", env, within=before)
            daemon.config.write_text(config_text(here / "run", here / "state"))
            daemons.append(s.enter_context(daemon))
        yield slurm, gpu, daemons


@needs_criu
@pytest.mark.long
@pytest.mark.parametrize("by", ["scontrol requeue", "checkpoint --requeue", "preemption"])
def test_a_requeued_job_has_the_memory_of_its_gpu_on_the_other_node(work: Path, by: str) -> None:
    """On another GPU, from another daemon."""
    orders, place, out = work / "orders", work / "saved", work / "out"
    orders.mkdir()
    ctl = f"{sys.executable} -m leased.cli.ctl"
    (work / "program").write_text(PROGRAM.replace("assert os.getppid() == parent", "assert True"))
    script = work / "script"
    script.write_text(
        f"#!/bin/sh\ncd {ROOT}\necho on $SLURMD_NODENAME\nexport EMUGPU_LETS_GO=1\n"
        f"exec {ctl} run --checkpoint {place} -- "
        f'{sys.executable} -c "$(cat {work}/program)" 96 4 {orders}\n'
    )

    def says(text: str) -> None:
        wait_until(text, lambda: out.exists() and text in out.read_text(), timeout=180)

    def used() -> list[bool]:
        return [now["free"] < there for now, there in zip(gpu.stats()["devices"], whole)]

    def is_on(place: int) -> bool:
        """Whether its memory is on that node's GPU, as the driver and the node's daemon say."""
        tenants = [ask(daemon.admin_socket, {"op": "status"})["tenants"] for daemon in daemons]
        told = [
            one["resident_bytes"] for of_one in tenants for one in of_one if one["job_id"] == job
        ]
        return used() == [place == 0, place == 1] and [sum(t.values()) for t in told] == [SIZE]

    with two_nodes(work) as (slurm, gpu, daemons):
        whole = [device["free"] for device in gpu.stats()["devices"]]
        first, second = slurm.layout.node_names
        fills = ("--gres=shard:4", f"--nodelist={second}", "--wrap", "exec sleep 600")
        slurm.sbatch(*fills, cwd=work)  # so the job has the other GPU there
        job = slurm.sbatch(
            *("--requeue", "--open-mode=append", f"--nodelist={first}", f"--output={out}"),
            *("--gres=shard:1", "--gpu-share=memory:swap", "--partition=low", str(script)),
        )
        says("ready")
        (orders / "0").touch()
        says("right 0")
        wait_until("its memory on the first node", lambda: is_on(0))
        if by == "scontrol requeue":
            slurm.run("scontrol", "requeue", str(job))
        elif by == "preemption":
            urgent = "--partition=urgent", "--exclusive", f"--nodelist={first}"
            slurm.sbatch(*urgent, "--wrap", "true", cwd=work)
        else:
            words = "sh", "-c", f"{ctl} checkpoint {job} {place} --requeue"
            slurm.run(*words, cwd=ROOT)
        wait_until("it to wait", lambda: slurm.job(job)["JobState"] == "PENDING")
        assert (place / "complete" / "checkpoint.json").exists(), out.read_text()
        slurm.run("scontrol", "update", f"jobid={job}", f"reqnodelist={second}", "starttime=now+3")
        says("goes on from its checkpoint")
        for n in (1, 2, 3):
            (orders / str(n)).touch()
            says(f"right {n}")
            if n == 1:
                wait_until("its memory on the second node", lambda: is_on(1))
        assert slurm.wait(job) == "COMPLETED", out.read_text()
    said = out.read_text()
    assert re.findall(r"^on (\S+)$", said, re.MULTILINE) == [first, second]
    assert said.count("ready") == 1

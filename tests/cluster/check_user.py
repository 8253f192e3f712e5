"""What README, docs/user.md and gpu-share(7) show to users, typed by one on a booted machine.

Run by `make test-cluster`. What an example calls 4711 is a job of the cluster, and its job.sh,
train.sh and jupyter compute on a GPU.
"""

from __future__ import annotations

import re

import pytest

from tests.cluster.machine import PROGRAM
from tests.cluster.site import Site
from tests.docs import documents
from tests.slurm.processes import wait_until

README, USER, MANUAL = "README.md", "docs/user.md", "gpu-share(7)"
ENDLESS = 1_000_000  # steps
COMPUTES = f"EMUGPU_DIR=/run/emugpu python3 -I {PROGRAM} /srv/kernels.ptx 8"
LIBRARY = "/usr/lib/gpu-lease/libgpulease.so"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def user(site: Site) -> Site:
    """The user's programs, and a job that goes on: 4711 of the examples."""
    script = f"#!/bin/bash\n{COMPUTES} 3 0 /tmp/$SLURM_JOB_ID.step\n"
    for name in ("tmp/job.sh", "tmp/train.sh", "usr/local/bin/jupyter"):
        site.head.write(f"/{name}", script)
        (site.head.root / name).chmod(0o755)
    return site


@pytest.fixture
def running(user: Site) -> int:
    job = user.submit("node1", 8, ENDLESS)
    user.get_on(job)
    return job


def number(said: str) -> int:
    found = re.search(r"Submitted batch job (\d+)", said)
    assert found, said
    return int(found[1])


def computed(site: Site, job: int) -> None:
    """It has ended as it should, and has used a GPU under a lease."""
    states, said = site.end(job), (site.head.root / f"tmp/slurm-{job}.out").read_text()
    assert (states, said) == (["COMPLETED"], "right on 1 GPUs\n")
    assert site.usage(job)["gpus"]


@pytest.mark.parametrize(
    "line",
    [
        documents.shown(README, "sbatch --gres=shard:1 --gpu-share=tq:60 job.sh"),
        documents.shown(USER, "sbatch --gres=shard:1 job.sh"),
        documents.shown(USER, "sbatch --gres=shard:1 --gpu-share=tq:60,mem:50% job.sh"),
        documents.shown(MANUAL, "sbatch --gres=shard:1 job.sh"),
        documents.shown(MANUAL, "sbatch --gres=shard:1 --gpu-share=tq:2m,mem:50% train.sh"),
    ],
)
def test_a_batch_job(user: Site, line: str) -> None:
    computed(user, number(user.as_user(line.replace("sbatch ", "sbatch -w node1 "))))


@pytest.mark.parametrize(
    "option",
    [
        documents.shown(README, "#SBATCH --gpu-share=tq:60"),
        documents.shown(USER, "#SBATCH --gpu-share=request"),
    ],
)
def test_options_in_a_script(user: Site, option: str) -> None:
    gres = documents.shown(README, "#SBATCH --gres")
    script = f"#!/bin/bash\n{gres}\n{option}\n{COMPUTES} 3 0 /tmp/$SLURM_JOB_ID.step\n"
    user.head.write("/tmp/options.sh", script)
    computed(user, number(user.as_user("sbatch -w node1 options.sh")))


@pytest.mark.parametrize(
    "line",
    [
        documents.shown(USER, "srun --gres=shard:1 --pty bash"),
        documents.shown(USER, "salloc --gres=shard:1"),
    ],
)
def test_a_shell_at_a_terminal(user: Site, line: str) -> None:
    """What is typed there computes under a lease; in salloc's shell by srun."""
    step = "srun --input=none " if line.startswith("salloc") else ""
    typed = [f"{step}env | grep ^LD_PRELOAD", f"{step}/tmp/train.sh", "exit", ""]
    user.head.write("/tmp/typed", "\n".join(typed))
    line = line.replace("--gres", "-w node1 --gres")
    said = user.as_user(f"SHELL=/bin/bash script -qec '{line}' /dev/null </tmp/typed")
    assert f"LD_PRELOAD={LIBRARY}" in said
    assert "right on 1 GPUs" in said


def test_a_notebook_at_a_terminal(user: Site) -> None:
    line = documents.shown(MANUAL, "srun --gres=shard:1 --gpu-share=tq:5s --pty jupyter")
    said = user.as_user(f"script -qec '{line}' /dev/null </dev/null")
    assert "right on 1 GPUs" in said


def test_where_a_job_stands(user: Site, running: int) -> None:
    assert str(running) in user.as_user(documents.shown(USER, "squeue --me"))
    mine = documents.shown(MANUAL, "gpu-leasectl mine")
    assert mine in documents.section(USER, "What happens to my job")
    for line in (documents.shown(USER, "gpu-leasectl mine 4711"), mine):
        assert str(running) in user.as_user(line.replace("4711", str(running)))
    user.as_user(documents.shown(USER, "gpu-leasectl park").replace("4711", str(running)))
    user.get_on(running)
    user.finish(running)
    user.usage(running)
    line = documents.shown(USER, "sacct -j 4711").replace("4711", str(running))
    assert "gpu-lease: GPU" in user.as_user(line)
    assert "gpu-lease: GPU" in user.as_user(documents.shown(README, "sacct -o"))
    assert "gpu-lease: GPU" in user.as_user(documents.shown(MANUAL, "sacct -o"))
    report = documents.shown(USER, "gpu-leasectl report")
    assert str(running) in user.as_user(report)


def test_a_shell_without_the_job_s_environment(user: Site) -> None:
    line = documents.shown(USER, "eval")
    user.head.write("/tmp/ssh.sh", f"{line}\nenv | grep ^LD_PRELOAD=\n")
    without = "srun -w node1 --gres=shard:1 env -u LD_PRELOAD -u GPU_LEASE_SOCKET sh /tmp/ssh.sh"
    assert f"LD_PRELOAD={LIBRARY}" in user.as_user(without)


def test_an_administrator_starts_the_daemon(user: Site) -> None:
    line = documents.shown(README, "systemctl start gpu-leased")
    user.other.shell("systemctl stop gpu-leased gpu-leased.socket gpu-leased-admin.socket")
    user.other.shell(line)
    wait_until("the daemon", lambda: user.status(user.other)["devices"] != [])

"""Jobs of all shapes, with hostile names, files and environments, share as they should."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.security.conftest import NOBODY
from tests.slurm.leased import PRELOAD
from tests.slurm.processes import wait_until
from tests.slurm.site import Site

# Modules that the Python half imports, or that Python itself does at its start.
MODULES = ("json", "socket", "re", "os", "site", "sitecustomize", "encodings", "spank", "_cffi")
OWN = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/loaded-by-%d", WHERE, (int)geteuid());
	close(open(path, O_CREAT | O_WRONLY, 0666));
}
"""


def trap(directory: Path) -> None:
    """Modules and libraries under names that root's processes load; each leaves a file."""
    for name in MODULES:
        for path in (directory / f"{name}.py", directory / "lib" / "python3.11" / f"{name}.py"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"import os\nopen('{directory}/ran-by-%d' % os.geteuid(), 'w')\n")
    source = directory / "own.c"
    source.write_text(OWN)
    for library in ("libslurm.so.38", "libslurm.so", "libpython3.11.so.1.0", "libmunge.so.2"):
        subprocess.run(
            [
                "gcc",
                "-shared",
                "-fPIC",
                f'-DWHERE="{directory}"',
                "-o",
                directory / library,
                source,
            ],
            check=True,
        )


def test_nothing_of_a_users_runs_as_root(site: Site) -> None:
    directory = site.work / "trap"
    directory.mkdir()
    trap(directory)
    directory.chmod(0o777)
    env = dict.fromkeys(("PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE"), str(directory))
    env |= {"PYTHONSTARTUP": f"{directory}/os.py", "LD_PRELOAD": f"{directory}/libslurm.so"}
    env |= {"LD_LIBRARY_PATH": str(directory), "PATH": f"{directory}:/usr/bin:/bin"}
    # For the job's environment only: srun itself, which is the user's, needs the real ones.
    export = ",".join(f"{name}={value}" for name, value in env.items())
    done = site.slurm.run(
        *("srun", "--gres=shard:1", f"--export={export}", "--chdir", str(directory)),
        *("/bin/sh", "-c", "echo $LD_PRELOAD"),
        user=NOBODY,
        cwd=directory,
    )
    assert done.stdout == f"{directory}/libslurm.so:{PRELOAD}\n"
    assert not (directory / "ran-by-0").exists()
    assert not (directory / "loaded-by-0").exists()
    assert [path.name.rpartition("-")[2] for path in directory.glob("loaded-by-*")] == ["65534"]


NAMES = {
    "a line of scontrol": "x\n     Nodes=node1 CPU_IDs=0 Mem=0 GRES=shard:4(IDX:0,1)",
    "SQL": "'; drop table tenants; --",
    "shell": "$(touch /tmp/owned);`id`|id>&2",
    "a path": "../../../../etc/passwd",
    "controls": "\x1b]0;owned\x07\r\t\x7f",
    "not UTF-8": "\udcff\udcfe",
    "JSON": '"},"gpus":[0,1],"shards":9,"x":{"',
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_users_choose_change_nothing(site: Site, name: str) -> None:
    text = NAMES[name]
    log = site.work / "named.log"
    job = site.slurm.sbatch(
        *("--gres=shard:1", f"--job-name={text}", f"--comment={text}", "-o", str(log)),
        *("--wrap", "printenv LD_PRELOAD"),
        user=NOBODY,
        cwd=site.work,
    )
    wait_until(
        "the job to be over",
        lambda: site.slurm.run("squeue", "-h", "-j", str(job), check=False).stdout == "",
    )
    assert log.read_text() == f"{PRELOAD}\n"
    used = ask(site.leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
    assert list(used) == site.devices()[:1]
    assert list(site.slurm.accounting(job, usage=True).usage["gpus"]) == site.devices()[:1]


def apart(log: Path) -> tuple[str, ...]:
    """Options for what the steps of a job write; srun itself may say that it had to wait."""
    return ("-o", str(log), "-e", f"{log}.err")


def test_tasks_of_an_array_are_jobs_of_their_own(site: Site) -> None:
    log = site.work / "array-%a.log"
    site.slurm.run(
        *("sbatch", "--wait", "--array=0-2", "--gres=shard:1", "-o", str(log)),
        *("--wrap", "printenv SLURM_JOB_ID LD_PRELOAD"),
        cwd=site.work,
    )
    jobs = set()
    for task in range(3):
        job, preload = (site.work / f"array-{task}.log").read_text().split()
        assert preload == str(PRELOAD)
        assert ask(site.leased.admin_socket, {"op": "usage", "job_id": int(job)})["usage"]
        jobs.add(job)
    assert len(jobs) == 3


@pytest.mark.parametrize("how", ["sbatch", "srun"])
def test_components_of_a_heterogeneous_job_share_if_they_have_a_shard(site: Site, how: str) -> None:
    """The option, which counts for all components, fails none that has no shard."""
    parts = ["--gres=shard:1", "--gpu-share=tq:5", ":", "-n1"]
    say = "echo $SLURM_PROCID ${LD_PRELOAD-none}"
    if how == "srun":
        said = site.slurm.run("srun", *parts, "sh", "-c", say).stdout
    else:
        log = site.work / "het.log"
        job = f"srun --het-group=0,1 sh -c '{say}'"
        site.slurm.run("sbatch", "--wait", *apart(log), *parts, "--wrap", job, cwd=site.work)
        said = log.read_text()
    assert sorted(said.splitlines()) == [f"0 {PRELOAD}", "1 none"]


def test_parallel_steps_are_one_tenant(site: Site) -> None:
    go = site.work / "go"
    step = f"srun --overlap sh -c 'echo $LD_PRELOAD; until [ -e {go} ]; do sleep 0.1; done' &"
    log = site.work / "parallel.log"
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-n2", *apart(log), "--wrap", f"{step} {step} wait"), cwd=site.work
    )
    lines = [str(PRELOAD)] * 4  # two steps of two tasks
    wait_until("the steps", lambda: log.exists() and log.read_text().splitlines() == lines)
    assert site.tenants() == [job]
    go.touch()
    assert site.slurm.wait(job) == "COMPLETED"


def test_a_requeued_job_shares_again(site: Site) -> None:
    log = site.work / "requeued.log"
    script = "echo $SLURM_RESTART_COUNT $LD_PRELOAD; exec sleep 600"
    job = site.slurm.sbatch(
        *("--gres=shard:1", "--requeue", "--open-mode=append", "-o", str(log), "--wrap", script),
        cwd=site.work,
    )
    wait_until("its first run", lambda: log.exists() and log.read_text() == f"{PRELOAD}\n")
    site.requeue(job)
    wait_until("its second run", lambda: f"1 {PRELOAD}\n" in log.read_text(), timeout=180, step=0.5)
    site.wait_for_tenant(job)
    site.slurm.run("scancel", str(job))
    assert site.slurm.wait(job) == "CANCELLED"


def test_a_job_that_is_cancelled_at_its_start_leaves_nothing(site: Site, plugin_dir: Path) -> None:
    hold, reached = plugin_dir / "hold", plugin_dir / "reached"
    hold.touch()
    job = site.slurm.sbatch("--gres=shard:1", "-o", "/dev/null", "--wrap", "true", cwd=site.work)
    try:
        wait_until("slurmctld to be asked", reached.exists)
        site.slurm.run("scancel", str(job))
    finally:
        hold.unlink()
        reached.unlink(missing_ok=True)
    assert site.slurm.wait(job) == "CANCELLED"

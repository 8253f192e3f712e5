"""Which GPUs a job may use is slurmctld's word: against environments that users write.

Every kind of step, as the user nobody, on a real Slurm with two nodes of two GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.security.conftest import NOBODY
from tests.slurm.leased import PRELOAD
from tests.slurm.processes import wait_until
from tests.slurm.site import Site

# What slurmd sets for jobs with GPUs, as a user would like it to be.
FORGED = {
    **{"SLURM_SHARDS_ON_NODE": "4", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "0,1"},
    **{"SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_NUM_NODES": "1"},
}
EXPORT = "export " + " ".join(f"{name}={value}" for name, value in FORGED.items())
# What a job of this cluster has of ours, one a line.
OURS = "env | grep -E '^(LD_PRELOAD|GPU_LEASE_SOCKET|SLURM_SHARDS_ON_NODE)=' | sort"


def shared(site: Site) -> str:
    """What OURS prints in a job with one shard."""
    socket_path = site.leased.run_dir / "tenant.sock"
    return f"GPU_LEASE_SOCKET={socket_path}\nLD_PRELOAD={PRELOAD}\nSLURM_SHARDS_ON_NODE=1\n"


def gpus_of(site: Site, environment: str) -> list[int]:
    """Indices of the GPUs that a job has leased, by what `env` printed in it."""
    job = int(variables(environment)["SLURM_JOB_ID"])
    used = ask(site.leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
    return sorted(site.devices().index(uuid) for uuid in used)


def variables(environment: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in environment.splitlines())


@contextmanager
def holding(site: Site, *arguments: str) -> Iterator[int]:
    """A batch job that stays, so that what comes later gets other GPUs."""
    job = site.slurm.sbatch(
        *arguments, "-o", "/dev/null", "--wrap", "exec sleep 600", cwd=site.work
    )
    try:
        wait_until("the job to run", lambda: site.slurm.job(job)["JobState"] == "RUNNING")
        yield job
    finally:
        site.slurm.run("scancel", str(job))
        site.slurm.wait(job)


STEPS = {
    "batch": ["sbatch", "--wait", "-o", "{log}", "--wrap", "{say}"],
    "srun": ["srun", "-o", "{log}", "sh", "-c", "{say}"],
    "a step of salloc": ["salloc", "srun", "-o", "{log}", "sh", "-c", "{say}"],
    "interactive": ["salloc", "sh", "-c", EXPORT + "; srun --interactive -o {log} sh -c '{say}'"],
    "nested": ["srun", "sh", "-c", EXPORT + "; srun --overlap -o {log} sh -c '{say}'"],
    "export=NONE": ["srun", "--export=NONE", "-o", "{log}", "/bin/sh", "-c", "{say}"],
    # From util-linux 2.42 on `script` runs the shell of the user's account, here nologin.
    "pty": [
        *("salloc", "sh", "-c"),
        EXPORT + "; SHELL=/bin/sh script -qec 'srun --pty sh -c \"{say}\"' {log}",
    ],
}


def run_step(site: Site, kind: str, gres: list[str], say: str) -> str:
    """Run a shell command in a step of this kind with a forged environment; what it wrote."""
    log = site.work / f"{kind.replace(' ', '-')}{gres[0]}.log"
    log.unlink(missing_ok=True)
    command, *rest = [word.format(log=log, say=say) for word in STEPS[kind]]
    site.slurm.run(
        command, *gres, "-w", site.slurm.node, *rest, user=NOBODY, env=FORGED, cwd=site.work
    )
    return log.read_text()


@pytest.mark.parametrize("kind", STEPS)
def test_a_forged_environment_leases_what_slurm_gave(site: Site, kind: str) -> None:
    with holding(site, "--gres=gpu:1", "-w", site.slurm.node):
        environment = run_step(site, kind, ["--gres=shard:1"], "env")
    assert gpus_of(site, environment) == [1], "GPU 0 is another job's"
    assert variables(environment)["LD_PRELOAD"] == str(PRELOAD)


@pytest.mark.parametrize("kind", STEPS)
def test_a_forged_environment_makes_no_job_share(site: Site, kind: str) -> None:
    """Neither one with a whole GPU nor one with CPUs alone; both run beside each other."""
    with ThreadPoolExecutor() as pool:
        steps = [
            pool.submit(run_step, site, kind, [gres], "env")
            for gres in ("--gres=gpu:1", "--ntasks=1")
        ]
        for environment in (step.result() for step in steps):
            assert "LD_PRELOAD" not in variables(environment)
            assert "GPU_LEASE_SOCKET" not in variables(environment)
            with pytest.raises(Refused, match="never shared"):
                gpus_of(site, environment)


def test_an_interactive_step_shares(site: Site) -> None:
    # The step runs $SHELL on a terminal. A program stands in for the user's shell: whatever is
    # typed to a real one depends on that user's start-up files and on who reads first.
    log, shell = site.work / "interactive.txt", site.work / "interactive.sh"
    shell.write_text(f"#!/bin/sh\n{OURS} > {log}\n")
    shell.chmod(0o755)
    salloc = f"SHELL={shell} salloc --gres=shard:1"
    done = site.slurm.run("script", "-qec", salloc, "/dev/null", check=False, cwd=site.work)
    assert done.returncode == 0, done.stdout
    assert log.read_text() == shared(site)


def test_a_slurmctld_that_is_restarted_is_waited_for(site: Site, plugin_dir: Path) -> None:
    hold, reached = plugin_dir / "hold", plugin_dir / "reached"
    hold.touch()
    log = site.work / "restarted.log"
    job = site.slurm.sbatch("--gres=shard:1", "-o", str(log), "--wrap", "env", cwd=site.work)
    try:
        wait_until("slurmctld to be asked", reached.exists)
        site.slurm.stop_daemon("slurmctld")
    finally:
        hold.unlink()
        reached.unlink(missing_ok=True)
    site.slurm.start_slurmctld()
    assert site.slurm.wait(job) == "COMPLETED"
    assert gpus_of(site, log.read_text()) == [0]

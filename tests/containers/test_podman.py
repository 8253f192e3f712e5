"""Real containers of podman in jobs that share a GPU, with only the shipped files enabled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers import roots
from tests.containers.jobs import Jobs, Process, output, took_turns
from tests.containers.podman import UID, Podman, required
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.support.cgroups import delegate


@pytest.fixture
def podman(short_dir: Path, leased: Leased) -> Podman:
    required()
    return Podman(short_dir / "podman", leased)


def start(
    podman: Podman,
    made: Jobs,
    job: int,
    root: Path,
    *command: str,
    rootless: bool = True,
    cgroup: Path | None = None,
) -> Process:
    """A container in a task of the job. cgroup: where podman runs, if not in the job's step."""
    gpu = made.leased.env["EMUGPU_DIR"]
    own = str(podman.own(root, rootless))
    words = ["run", "--rm", "--cgroups=disabled", f"--volume={gpu}:{gpu}"]
    words += [f"--env=EMUGPU_DIR={gpu}", "--rootfs", own, *command]
    return made.start(job, podman.command(*words, rootless=rootless), cgroup=cgroup)


@pytest.mark.parametrize("rootless", [True, False], ids=["rootless", "root"])
def test_two_jobs_take_turns_each_in_its_container(
    podman: Podman, made_jobs: Jobs, root: Path, emulated_gpu: EmulatedGpu, rootless: bool
) -> None:
    started = []
    for job in (1, 2):
        made_jobs.add(job, "tq:100ms,lock:on")
        words = roots.command(32, 100)
        started.append(start(podman, made_jobs, job, root, *words, rootless=rootless))
    for process in started:
        assert line(process) == "ready"
    assert made_jobs.clients() == {1: 1, 2: 1}
    for process in started:
        assert output(process) == "right\n"
    took_turns(emulated_gpu, made_jobs, 1, 2)


def test_a_container_of_no_job_has_nothing_of_ours(
    podman: Podman, made_jobs: Jobs, root: Path
) -> None:
    """Whatever the environment of who starts it says."""
    made_jobs.add(1, "")
    elsewhere = delegate(made_jobs.place / "user.service", UID)
    said = output(start(podman, made_jobs, 1, root, "/bin/env", cgroup=elsewhere))
    assert "EMUGPU_DIR" in said
    assert "GPU_LEASE" not in said
    assert "LD_PRELOAD" not in said


def test_a_container_of_a_job_has_what_it_needs(
    podman: Podman, made_jobs: Jobs, root: Path
) -> None:
    made_jobs.add(1, "")
    said = output(start(podman, made_jobs, 1, root, "/bin/env")).splitlines()
    assert f"LD_PRELOAD={CHECKED}" in said
    assert f"GPU_LEASE_SOCKET={made_jobs.leased.run_dir}/tenant.sock" in said

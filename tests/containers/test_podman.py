"""Real containers of podman in jobs that share a GPU, with only the shipped files enabled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers import roots
from tests.containers.jobs import Jobs, Process, output, took_turns
from tests.containers.podman import Podman, required
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased

OF_CONTAINER = ("EMUGPU_DIR",)


@pytest.fixture
def podman(short_dir: Path, leased: Leased) -> Podman:
    required()
    return Podman(short_dir / "podman", leased)


def start(
    podman: Podman, made: Jobs, job: int, root: Path, *command: str, **how: object
) -> Process:
    """A container in a task of the job. how: see Podman.command()."""
    gpu = made.leased.env["EMUGPU_DIR"]
    rootless = bool(how.get("rootless", True))
    own = str(podman.own(root, rootless))
    words = ["run", "--rm", "--cgroups=disabled", f"--volume={gpu}:{gpu}"]
    words += [f"--env=EMUGPU_DIR={gpu}", "--rootfs", own, *command]
    return made.start(job, podman.command(*words, rootless=rootless))


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

"""Who a process in a container is: the kernel's namespaces change nothing, its cgroup decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers import namespaces, roots
from tests.containers.jobs import Jobs, Process, output, took_turns
from tests.containers.namespaces import PIDS, USERS, Mount
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED
from tests.support.cgroups import delegate

NOBODY = 65534
KINDS = {
    "mounts": (),
    "pids": PIDS,
    "users": USERS,
    "cgroups": (*USERS, "--cgroup"),
    "all": (*USERS, *PIDS, "--cgroup", "--ipc", "--uts", "--net"),
}


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    namespaces.required()


def container(
    made: Jobs,
    job: int,
    root: Path,
    words: list[str],
    *,
    kind: str = "all",
    user: str | None = "nobody",
    cgroup: Path | None = None,
    daemon: bool = True,
) -> Process:
    """A container in a task of the job that has all it needs; without `daemon`, not its socket."""
    env = {name: made.leased.env[name] for name in ("EMUGPU_DIR",)} | made.given[job]
    paths = [env["EMUGPU_DIR"], str(CHECKED)] + [str(made.leased.run_dir)] * daemon
    mounts = [Mount(path, path) for path in paths]
    start = namespaces.command(root, words, mounts=mounts, env=env, namespaces=KINDS[kind])
    return made.start(job, start, user=user, cgroup=cgroup)


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_jobs_cgroup_it_is_the_jobs(made_jobs: Jobs, root: Path, kind: str) -> None:
    made_jobs.add(1, "")
    user = "nobody" if "--user" in KINDS[kind] else None  # the others only root may make
    process = container(made_jobs, 1, root, roots.command(8, 40), kind=kind, user=user)
    assert line(process) == "ready"
    assert made_jobs.clients() == {1: 1}
    assert output(process) == "right\n"


def test_two_jobs_take_turns_each_in_its_container(
    made_jobs: Jobs, root: Path, emulated_gpu: EmulatedGpu
) -> None:
    started = []
    for job in (1, 2):
        made_jobs.add(job, "tq:100ms,lock:on")
        started.append(container(made_jobs, job, root, roots.command(32, 100)))
    for process in started:
        assert line(process) == "ready"
    assert made_jobs.clients() == {1: 1, 2: 1}
    for process in started:
        assert output(process) == "right\n"
    took_turns(emulated_gpu, made_jobs, 1, 2)


@pytest.mark.parametrize("name", ["user@65534.service", "user@65534.service/job_1/step_0"])
def test_in_another_cgroup_it_is_of_no_job_and_is_told_so(
    made_jobs: Jobs, root: Path, name: str
) -> None:
    """As podman's containers are with systemd's cgroups: a user's word about it counts nothing."""
    made_jobs.add(1, "")
    moved = delegate(made_jobs.place / name, NOBODY)
    process = container(made_jobs, 1, root, roots.command(8, 1), cgroup=moved)
    out, err = process.communicate(timeout=60)
    assert "error 800" in out  # CUDA_ERROR_NOT_PERMITTED
    assert err.count("\n") == 1
    assert "is in a container, and in the cgroup of no job that shares a GPU here" in err
    assert "podman run --cgroups=disabled" in err
    assert made_jobs.clients() == {1: 0}


def test_a_detached_process_in_a_container_stays_the_jobs(made_jobs: Jobs, root: Path) -> None:
    made_jobs.add(1, "")
    words = ["/bin/sh", "-c", f"({' '.join(roots.command(8, 1))} &); /bin/cat"]
    process = container(made_jobs, 1, root, words, kind="users")
    assert line(process) == "ready"
    assert line(process) == "right"


def test_a_container_without_the_socket_says_so(made_jobs: Jobs, root: Path) -> None:
    made_jobs.add(1, "")
    process = container(made_jobs, 1, root, roots.command(8, 1), daemon=False)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "(No such file or directory): there is no such socket here; in a container" in said
    assert process.poll() is None, "it goes on as soon as it can"

"""Jobs that ended without the daemon's hearing of it: what squeue says, and what is believed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from leased.leasing.leases import Leases
from leased.monitors.ended_jobs import EndedJobs
from leased.slurm.commands import JobState, Slurm
from leased.store.store import Store
from tests.support.node_requests import Node

HEADER = "JOBID STATE START_TIME END_TIME"


class Squeue:
    """A squeue that says what a test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.path = folder / "bin" / "squeue"
        self.path.parent.mkdir()
        monkeypatch.setenv("PATH", f"{self.path.parent}:/usr/bin:/bin")
        self.slurm = Slurm({})

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{script}\n")
        self.path.chmod(0o755)

    def says(self, *lines: str) -> None:
        self.does("cat <<'END'\n" + "\n".join(lines) + "\nEND")

    def jobs(self, *job_ids: int) -> dict[int, JobState]:
        return asyncio.run(self.slurm.jobs(job_ids))


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Squeue:
    return Squeue(tmp_path, monkeypatch)


def test_squeues_answer_is_read(squeue: Squeue) -> None:
    squeue.says(
        HEADER,
        *("7 RUNNING 1700000000 1700000060", "8 PENDING N/A N/A"),
        "9 CANCELLED 1700000001 1700000002",
    )
    found = squeue.jobs(7, 8, 9, 10)
    assert found == {
        7: JobState("RUNNING", 1.7e9, 1.7e9 + 60),
        8: JobState("PENDING"),
        9: JobState("CANCELLED", 1700000001.0),
    }
    assert [job for job, state in found.items() if state.absent] == [8, 9]


def test_squeue_is_asked_in_the_way_that_is_read(squeue: Squeue) -> None:
    squeue.does('echo "$@" $SLURM_TIME_FORMAT >&2; exit 1')
    with pytest.raises(OSError, match="-t all -j 7,8 -o %A %T %S %e %s"):
        squeue.jobs(7, 8)


def test_a_job_that_is_forgotten_is_no_fault(squeue: Squeue) -> None:
    squeue.does("echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")
    assert squeue.jobs(7) == {}


GARBAGE = {
    "nothing": "",
    "no header": "echo 7 RUNNING 1700000000",
    "a site's own format": "echo JOBID PARTITION NAME USER ST; echo 7 gpu job me R",
    "cut lines": f"echo {HEADER}; echo 7 RUNN",
    "bytes": "head -c 4096 /dev/urandom",
    "words": "echo You are not allowed to do that",
    "an error": "echo Unable to contact slurm controller >&2; exit 1",
    "silence and an error": "exit 3",
    "a signal": "kill -9 $$",
    "without end": "yes",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_an_answer_that_is_not_squeues_ends_no_job(squeue: Squeue, kind: str) -> None:
    squeue.does(GARBAGE[kind])
    with pytest.raises(OSError, match=r"\w+"):
        squeue.jobs(7)


def test_a_squeue_that_is_not_there(squeue: Squeue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(squeue.path.parent))
    with pytest.raises(FileNotFoundError):
        squeue.jobs(7)


class Told(Slurm):
    """Slurm's word, as a test gives it."""

    def __init__(self) -> None:
        super().__init__({})
        self.said: dict[int, JobState] | str = {}

    async def jobs(self, job_ids: Collection[int]) -> dict[int, JobState]:
        if isinstance(self.said, str):
            raise OSError(self.said)
        return {job: state for job, state in self.said.items() if job in job_ids}


class Watched:
    """Three tenants of which some live here."""

    def __init__(self, node: Node):
        for job in (1, 2, 3):
            node.register(job)
        self.node = node
        self.leases: Leases = node.leases
        self.store: Store = node.store
        self.slurm = Told()
        self.living = {1, 2, 3}
        self.ghosts = EndedJobs(
            self.leases, self.store, self.slurm, lambda job: job in self.living, self.end
        )

    def end(self, job_id: int) -> None:
        self.store.close_tenant(job_id, *self.leases.tenants.close(job_id))

    def look(self, said: dict[int, JobState] | str) -> list[int]:
        self.slurm.said = said
        asyncio.run(self.ghosts.look())
        return sorted(self.leases.tenants)


@pytest.fixture
def watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    caplog.set_level(logging.INFO, "gpu-leased")
    node = Node(tmp_path)
    yield Watched(node)
    node.store.close()


RUNNING = JobState("RUNNING", 0.0)


def test_a_state_without_processes_ends_the_tenant(watched: Watched) -> None:
    said = {1: RUNNING, 2: JobState("CANCELLED", 1.0), 3: JobState("COMPLETING", 1.0)}
    assert watched.look(said) == [1, 3]
    assert watched.look({1: RUNNING, 3: JobState("PENDING")}) == [1]


def test_a_state_of_a_newer_slurm_ends_nobody(watched: Watched) -> None:
    assert watched.look({n: JobState("LAUNCHING", 1.0) for n in (1, 2, 3)}) == [1, 2, 3]


def test_a_job_that_slurm_does_not_know_ends_when_nothing_of_it_lives(watched: Watched) -> None:
    assert watched.look({1: RUNNING, 2: RUNNING}) == [1, 2, 3]
    watched.living = {1, 2}
    assert watched.look({1: RUNNING, 2: RUNNING}) == [1, 2]


def test_a_job_that_runs_anew_elsewhere_ends_here(watched: Watched) -> None:
    later = JobState("RUNNING", 9e10)
    assert watched.look({1: RUNNING, 2: later, 3: later}) == [1, 2, 3], "it is here that it runs"
    watched.living = {1, 3}
    assert watched.look({1: RUNNING, 2: later, 3: later}) == [1, 3]


def test_no_tenant_ends_while_slurm_does_not_answer_and_that_is_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.living = set()
    for _ in range(3):
        assert watched.look("it took longer than 30 s") == [1, 2, 3]
    assert watched.look(dict.fromkeys((1, 2, 3), RUNNING)) == [1, 2, 3]
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("Slurm does not say which jobs have ended: it took longer than 30 s") == 1
    assert lines.count("Slurm says again which jobs have ended") == 1


def test_an_answer_about_one_run_of_a_job_ends_no_later_one(watched: Watched) -> None:
    """It is requeued, and starts here again, before the answer has come."""
    told = watched.slurm.jobs

    async def slow(job_ids: Collection[int]) -> dict[int, JobState]:
        said = await told(job_ids)
        watched.end(2)
        watched.node.register(2)
        return said

    watched.slurm.jobs = slow  # type: ignore[method-assign]
    said = {1: RUNNING, 2: JobState("PENDING"), 3: JobState("PENDING")}
    assert watched.look(said) == [1, 2]

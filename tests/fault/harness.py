"""Everybody else: eight jobs on a real gpu-leased that must go on whatever a test breaks.

def test_something(node: FaultyNode) -> None:
    with node.everybody_goes_on():
        break_something()
    assert node.said("what it says about that") == 1
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.fault.askers import ENTRY
from tests.slurm.leased import GIVES_UP_SOON, GRANTS_SOON, Leased
from tests.slurm.processes import start, wait_until
from tests.support.together import zip_strict

JOBS = tuple(range(1, 9))
TURNS = 3  # grants for everybody, so that the last were asked for after the fault
PATIENCE_S = 120.0


class Askers:
    """Jobs that ask for ever (see askers.py); their grants and refusals so far."""

    def __init__(self, leased: Leased, jobs: Sequence[int] = JOBS):
        self.jobs = jobs
        self.file = leased.prefix / f"counts-{jobs[0]}"
        self.file.write_bytes(bytes(ENTRY.size * len(jobs)))
        with self.file.open("r+b") as file:
            self.counts = mmap.mmap(file.fileno(), 0)
        words = [str(leased.run_dir), str(self.file), *map(str, jobs)]
        with (leased.prefix / f"askers-{jobs[0]}.log").open("ab") as log:
            self.process = start(
                [sys.executable, "-m", "tests.fault.askers", *words], leased.env, log.fileno()
            )

    def _column(self, which: int) -> dict[int, int]:
        entries = ENTRY.iter_unpack(self.counts[:])
        return {job: entry[which] for job, entry in zip_strict(self.jobs, entries)}

    @property
    def granted(self) -> dict[int, int]:
        return self._column(0)

    @property
    def refused(self) -> dict[int, int]:
        return {job: times for job, times in self._column(1).items() if times}

    def wait_granted(self, before: dict[int, int], but: Sequence[int] = ()) -> None:
        """Until all of them but some have been granted TURNS times since then."""
        late: list[int] = []

        def all_of_them() -> bool:
            late[:] = [
                job
                for job, times in self.granted.items()
                if job not in but and times < before[job] + TURNS
            ]
            return not late

        try:
            wait_until("everybody to be granted", all_of_them, timeout=PATIENCE_S)
        except TimeoutError:
            pytest.fail(f"jobs {late} were not granted since; refused were {self.refused}")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.counts.close()


class FaultyNode:
    """gpu-leased on an emulated GPU with its askers, and what a test asks of them."""

    def __init__(self, leased: Leased):
        self.leased = leased
        self.askers: Askers | None = None

    @property
    def state(self) -> Path:
        """The directory of usage.db."""
        return self.leased.prefix / "state"

    @property
    def database(self) -> Path:
        return self.state / "usage.db"

    def begin(self, jobs: Sequence[int] = JOBS) -> None:
        """Start the jobs and wait until each has had its turns."""
        if self.askers is not None:
            self.askers.stop()
        self.askers = Askers(self.leased, jobs)
        self.askers.wait_granted(dict.fromkeys(jobs, 0))

    @contextlib.contextmanager
    def everybody_goes_on(self, but: Sequence[int] = ()) -> Iterator[None]:
        """What is done meanwhile keeps no job but those from being granted, again and again."""
        assert self.askers is not None
        yield
        # From now on: what was granted while the fault came about says nothing.
        self.askers.wait_granted(self.askers.granted, but)
        assert set(self.askers.refused) <= set(but)

    def restart(self) -> None:
        """As after a crash."""
        self.leased.kill()
        self.leased.start()

    def status(self) -> dict[str, Any]:
        return ask(self.leased.admin_socket, {"op": "status"})

    def tenants(self) -> list[int]:
        return [tenant["job_id"] for tenant in self.status()["tenants"]]

    def fault(self) -> str | None:
        """What status says of the store."""
        said: str | None = self.status()["store_fault"]
        return said

    def wait_fault(self, there: bool) -> None:
        what = "the store's fault" if there else "the store to be written again"
        wait_until(what, lambda: (self.fault() is not None) == there, timeout=PATIENCE_S)

    def log(self) -> str:
        return self.leased.log.read_text(errors="replace")

    def said(self, words: str) -> int:
        """In how many lines of its log these words stand."""
        return sum(words in line for line in self.log().splitlines())

    def wait_said(self, words: str, times: int = 1) -> None:
        wait_until(f"it to say {words!r}", lambda: self.said(words) >= times, timeout=PATIENCE_S)

    def no_tracebacks(self) -> None:
        assert "Traceback" not in self.log(), self.log()[-4000:]


@contextlib.contextmanager
def faulty_node(folder: Path, env: dict[str, str] | None = None) -> Iterator[FaultyNode]:
    """A node in a directory with a short name. env: what the daemon gets besides."""
    with EmulatedGpu(folder / "gpu") as gpu:
        environment = os.environ | gpu.env | dict(env or {})
        leased = Leased(
            folder / "leased", folder / "run", environment, hurried=GIVES_UP_SOON + GRANTS_SOON
        )
        node = FaultyNode(leased)
        try:
            with leased:
                yield node
                node.no_tracebacks()
        finally:
            if node.askers is not None:
                node.askers.stop()

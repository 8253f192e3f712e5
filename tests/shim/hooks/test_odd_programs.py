"""Programs that do what few do, with descriptors, limits and ends: nothing of theirs is hurt."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emugpu.server import BUILD, EmulatedGpu
from tests.slurm.leased import IMPATIENT
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, output, programs, tell

ODD = BUILD.parent / "shim" / "hooks" / "odd_programs"
THREAD_LOCALS = ODD.parent / "many_thread_locals"
MIB = 1 << 20

Odd = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def daemon(short_dir: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(short_dir / "tenant.sock", {}) as fake:
        yield fake


@pytest.fixture
def odd(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Odd]:
    """Start a scenario of odd_programs.c, which soon hears why it waits; killed at the end if it
    still runs."""
    with programs(emulated_gpu, preload=IMPATIENT) as all_of_them:

        def start(*scenario: str, program: Path = ODD) -> subprocess.Popen[str]:
            socket = short_dir / "tenant.sock"
            return all_of_them.start(str(program), *scenario, socket=socket)

        yield start


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("what", ["files", "sockets"])
def test_descriptors_that_a_program_has_closed_are_its_own(odd: Odd, what: str) -> None:
    job = odd(f"{what} in their place")
    assert line(job) == "replaced"
    tell(job)
    assert output(job) == "done\n"


@pytest.mark.usefixtures("daemon")
def test_output_of_a_program_without_stdout_goes_nowhere(odd: Odd) -> None:
    assert output(odd("without standard output")) == "done\n"


@pytest.mark.parametrize("scenario", ["may open no more", "may not poll"])
def test_a_program_that_has_shut_itself_in_hears_the_daemon(
    odd: Odd, daemon: FakeDaemon, scenario: str
) -> None:
    job = odd(scenario)
    assert line(job) == "limited"
    client = daemon.client(job.pid)
    client.revoke()
    tell(job)
    assert output(job) == "done\n"


def test_a_program_that_has_cut_itself_off_gives_its_lease_back(
    odd: Odd, daemon: FakeDaemon
) -> None:
    """The daemon, which is there, has given the GPU to another job."""
    job = odd("cut off")
    assert line(job) == "cut off"
    before = daemon.client(job.pid)
    assert job.stderr is not None
    assert "this process has no file descriptors left" in job.stderr.readline()
    tell(job)
    assert output(job) == "done\n"
    after = daemon.client(job.pid)
    assert after is not before
    assert after.held == 0


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("scenario", "remedy"),
    [("has no descriptor left", "(ulimit -n)"), ("gets no thread", "(ulimit -u, ulimit -v)")],
)
def test_a_missing_resource_is_named_once_and_costs_nothing(
    odd: Odd, scenario: str, remedy: str
) -> None:
    job = odd(scenario)
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, "done\n"), err
    assert err.count("this process cannot wait for its lease") == 1
    assert remedy in err


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("scenario", ["has all keys", "child of clone"])
def test_the_program_is_as_it_was(odd: Odd, scenario: str) -> None:
    assert output(odd(scenario)) == "done\n"


def test_a_copy_of_a_process_that_has_no_lease_does_not_wait_for_one(
    odd: Odd, daemon: FakeDaemon
) -> None:
    """Nobody would ever tell it that it has one."""
    job = odd("child of clone submits")
    assert line(job) == "submitted"
    daemon.auto = False
    daemon.client(job.pid).revoke()
    tell(job)
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out) == (0, "done\n"), err
    assert "made without fork()" in err


def waits_without_lease(job: subprocess.Popen[str], daemon: FakeDaemon) -> Client:
    """It has a lease; a thread of it then waits in vain for another one."""
    assert line(job) == "submitted"
    daemon.auto = False
    client = daemon.client(job.pid)
    wants = client.wants
    client.revoke()
    tell(job)
    client.until("request", lambda: client.wants > wants)
    return client


def next_call(job: subprocess.Popen[str], client: Client) -> None:
    """It waits like any other, and is let in."""
    wants = client.wants
    tell(job)
    client.until("request", lambda: client.wants > wants)
    client.grant()


@pytest.mark.parametrize("how", ["longjmp", "pthread_exit"])
def test_a_thread_that_has_left_the_wait_wants_no_lease(
    odd: Odd, daemon: FakeDaemon, how: str
) -> None:
    """A handler of a signal leaves it, as those of programs in Lisp and of cysignals do."""
    job = odd(f"waits are left by {how}")
    for _ in range(4):
        client = waits_without_lease(job, daemon)
        if how == "longjmp":
            assert line(job) == "left"
            client.grant()
            assert not client.revoke().wants
            next_call(job, client)
        assert line(job) == "ended"
        if how == "pthread_exit":
            client.grant()
        assert not client.revoke().wants
        daemon.auto = True
        tell(job)
    assert output(job) == "done\n"


def test_a_wait_goes_on_after_a_signal(odd: Odd, daemon: FakeDaemon) -> None:
    job = odd("waits are interrupted")
    client = waits_without_lease(job, daemon)
    assert line(job) == "interrupted"
    assert client.wants == 2
    client.grant()
    assert output(job) == "done\n"


def test_a_clock_that_is_set_back_lets_nobody_wait_for_longer(odd: Odd) -> None:
    """There is no daemon, for which a program that monitors the GPU waits for a second."""
    assert output(odd("clock is set back")) == "done\n"


@pytest.mark.usefixtures("daemon")
def test_a_program_with_many_thread_local_variables_runs(odd: Odd) -> None:
    """glibc takes them from the stack of each thread, ours too."""
    assert output(odd(program=THREAD_LOCALS)) == "done\n"

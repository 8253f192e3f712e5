"""Locks are taken in the order of shim/base/locks.h, and a thread that does not is found."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.conftest import Start
from tests.emugpu.server import BUILD
from tests.slurm.leased import CHECKED, PRELOAD

PROGRAM = BUILD.parent / "shim" / "base" / "lock_order"


def run(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAM), how], check=False, capture_output=True, text=True, timeout=60
    )


def test_a_thread_that_takes_them_in_order_goes_on() -> None:
    done = run("in order")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("inverted", "lock 'contexts' is taken by a thread that holds 'swap'"),
        ("twice", "lock 'swap' is taken by a thread that holds 'swap'"),
        ("twice, imports", "lock 'imports' is taken by a thread that holds 'imports'"),
        ("waits with another", "a thread waits with lock 'swap' and also holds 'contexts'"),
        (
            "releases what it does not hold",
            "lock 'swap' is released by a thread that does not hold it",
        ),
    ],
)
def test_a_thread_that_does_not_is_ended_with_a_message(how: str, said: str) -> None:
    done = run(how)
    assert done.returncode == -signal.SIGABRT
    assert said in done.stderr


def test_the_library_of_the_tests_checks_and_the_released_one_does_not() -> None:
    """The fixtures give their programs this library, so that every test checks the order."""
    words = b"is taken by a thread that holds"
    assert words in CHECKED.read_bytes()
    assert words not in PRELOAD.read_bytes()


def test_a_job_of_the_tests_has_it(tenant: Start) -> None:
    job = tenant(7, "tq:30", "-c", f"print({str(CHECKED)!r} in open('/proc/self/maps').read())")
    assert job.communicate(timeout=60)[0] == "True\n"

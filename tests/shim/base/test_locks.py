"""Locks are taken in the order of shim/base/locks.h, and who does not is found out."""

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


def test_who_takes_them_in_order_goes_on() -> None:
    done = run("in order")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("inverted", "lock 'contexts' is taken by a thread that has 'swap'"),
        ("twice", "lock 'swap' is taken by a thread that has 'swap'"),
        ("waits with another", "a thread waits with lock 'swap' and has 'contexts'"),
        ("gives what it has not", "lock 'swap' is given by a thread that has not got it"),
    ],
)
def test_who_does_not_is_ended_with_a_message(how: str, said: str) -> None:
    done = run(how)
    assert done.returncode == -signal.SIGABRT
    assert said in done.stderr


def test_the_library_of_the_tests_watches_and_the_released_one_does_not() -> None:
    """The fixtures of the tests give their programs this library, so that all is watched."""
    words = b"is taken by a thread that has"
    assert words in CHECKED.read_bytes()
    assert words not in PRELOAD.read_bytes()


def test_a_job_of_the_tests_has_it(tenant: Start) -> None:
    job = tenant(7, "tq:30", "-c", f"print({str(CHECKED)!r} in open('/proc/self/maps').read())")
    assert job.communicate(timeout=60)[0] == "True\n"

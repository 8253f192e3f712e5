"""Locks are taken in the order of shim/base/locks.h, and who does not is found out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.emugpu.server import BUILD, ROOT

PROGRAM = BUILD.parent / "shim" / "base" / "lock_order"
TIMEOUT_S = 280
WHERE = [
    "test_interposer.py",
    "work/test_contexts.py",
    "memory/test_ordered_frees.py",
    "hooks/test_host_program.py",
    "lease/test_messages.py",
    "memory/test_reported_memory.py",
    "hooks/test_races.py",
    "memory/swap/test_swap_jax.py",
    "memory/swap/test_swap_peer.py",
    "memory/swap/test_swap_moves.py",
    "memory/swap/test_swap_stress.py",
    "memory/swap/test_swap_vmm.py",
]


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


@pytest.mark.skipif("GPU_LEASE_TEST_LOCKS" in os.environ, reason="this is the run that it starts")
@pytest.mark.parametrize(
    "file", [pytest.param(name, marks=pytest.mark.xdist_group(f"locks {name}")) for name in WHERE]
)
def test_the_interposer_takes_them_in_order(file: str) -> None:
    """All that its tests make it do once more, in the library that watches the order."""
    test = str(ROOT / "tests" / "shim" / file)
    # A run of its own, not a part of the one that this process works for.
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env=env | {"GPU_LEASE_TEST_LOCKS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-20000:]

"""Who cannot act: real processes that are stopped, traced and frozen, and made-up ones."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.processes import procfs
from leased.processes.identity import alive, process_id
from leased.processes.stopped_processes import is_stopped, stands_still
from tests.slurm.processes import wait_until
from tests.support.cgroups import one_with

THREADS = """
import sys, threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("runs", flush=True)
sys.stdin.readline()
"""
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WAIT_ALL = 0x40000000  # __WALL: for threads too


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """One with several threads."""
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "runs\n"
        yield started
        started.kill()


# Its first thread ends; the kernel shows the process as a zombie while another thread goes on.
FIRST_ENDS = """
import ctypes, os, platform, sys, threading
def goes_on():
    sys.stdin.readline()
    os._exit(0)
threading.Thread(target=goes_on).start()
print("runs", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


@pytest.fixture
def headless() -> Iterator[subprocess.Popen[str]]:
    """One whose first thread has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "runs\n"
        yield started
        os.kill(started.pid, signal.SIGKILL)


def test_a_process_whose_first_thread_has_ended_runs(headless: subprocess.Popen[str]) -> None:
    process = process_id(headless.pid)
    assert process is not None
    wait_until("its first thread to end", lambda: state_of(headless.pid) == procfs.ZOMBIE)
    assert alive(process)
    assert not stands_still(headless.pid)
    os.kill(headless.pid, signal.SIGSTOP)
    wait_until("it to stand still", lambda: stands_still(headless.pid))
    assert is_stopped(process)
    os.kill(headless.pid, signal.SIGCONT)
    wait_until("it to go on", lambda: not stands_still(headless.pid))
    os.kill(headless.pid, signal.SIGKILL)
    os.waitid(os.P_PID, headless.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(process)
    assert not is_stopped(process)


def state_of(pid: int) -> str:
    seen = procfs.stat(pid)
    assert seen is not None
    return seen.state


def test_a_running_or_sleeping_process_can_act(process: subprocess.Popen[str]) -> None:
    assert not stands_still(process.pid)
    assert not stands_still(os.getpid())
    process.kill()
    process.wait()
    assert not stands_still(process.pid)


def test_a_stopped_process_cannot_act(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    wait_until("it to stand still", lambda: stands_still(process.pid))
    os.kill(process.pid, signal.SIGCONT)
    wait_until("it to go on", lambda: not stands_still(process.pid))


def end_traced(pid: int, threads: list[int]) -> None:
    """It is gone when its tracer has waited for each thread, for the first one at last.

    Not with Popen.kill, which takes a stop that it hears of for the end, and sends nothing.
    """
    os.kill(pid, signal.SIGKILL)
    for tid in sorted(threads, key=lambda tid: tid == pid):
        while os.WIFSTOPPED(os.waitpid(tid, WAIT_ALL)[1]):
            pass


def test_a_debugger_stops_all_threads_or_none_counts(process: subprocess.Popen[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def trace(request: int, tid: int) -> None:
        if libc.ptrace(request, tid, None, None):
            pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")

    threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    for tid in threads:
        trace(PTRACE_SEIZE, tid)
    trace(PTRACE_INTERRUPT, process.pid)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert not stands_still(process.pid), "its other threads run on"
    for tid in threads:
        if tid != process.pid:
            trace(PTRACE_INTERRUPT, tid)
    wait_until("all to stand still", lambda: stands_still(process.pid))
    end_traced(process.pid, threads)


Group = tuple[Path, Callable[[bool], None]]


@pytest.fixture(params=["freezer.state", "cgroup.freeze"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A cgroup of version 1 or 2 below another one, which freezes and thaws."""
    v1 = request.param == "freezer.state"
    words = ("THAWED", "FROZEN") if v1 else ("0", "1")
    with one_with(request.param, ["freezer"] if v1 else ["", "unified"], "below") as made:

        def freeze(on: bool) -> None:
            (made / request.param).write_text(words[on])

        yield made / "below", freeze


def test_a_frozen_process_cannot_act(process: subprocess.Popen[str], group: Group) -> None:
    below, freeze = group
    (below / "cgroup.procs").write_text(str(process.pid))
    assert not stands_still(process.pid)
    freeze(True)
    wait_until("it to stand still", lambda: stands_still(process.pid))
    freeze(False)
    wait_until("it to go on", lambda: not stands_still(process.pid))
    process.kill()
    process.wait()
    wait_until("its cgroup to be empty", lambda: not (below / "cgroup.procs").read_text())


def made_up(tmp_path: Path, state: str, cgroup: bytes) -> None:
    place = tmp_path / "7"
    place.mkdir()
    zeros = " ".join(["0"] * 17)
    (place / "stat").write_text(f"7 (x) {state} 1 {zeros} 55 0\n")
    (place / "cgroup").write_bytes(cgroup)


@pytest.mark.parametrize(
    "cgroup",
    [
        b"",
        b"no line of a kernel\n",
        b"3:freezer:/nowhere\n0::/nowhere\n",
        b"3:freezer:/a\xff\x1c\rb\n",
        b"0::/../..\n",
    ],
)
def test_a_process_of_which_nothing_is_known_can_act(tmp_path: Path, cgroup: bytes) -> None:
    made_up(tmp_path, "S", cgroup)
    assert not stands_still(7, tmp_path, tmp_path)


def test_a_name_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    made_up(tmp_path, "D", b"3:freezer:/a\xff\rb\n")
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/freezer/a\xff\rb"))
    place.mkdir(parents=True)
    (place / "freezer.state").write_text("FROZEN\n")
    assert stands_still(7, tmp_path, tmp_path)

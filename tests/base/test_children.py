"""The programs that the daemon starts: their environment, and how they are ended."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
from pathlib import Path

import pytest

from leased.base import children
from leased.base.children import Done
from tests.slurm.processes import wait_until

LONG_S = 600.0  # of patience, where a test ends before


def run(*command: str, stdin: bytes = b"", patience_s: float = LONG_S, most: int = 1 << 20) -> Done:
    return asyncio.run(children.run(*command, stdin=stdin, patience_s=patience_s, most=most))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()[0] == b"Z"


def test_the_output_and_the_status_of_a_child() -> None:
    assert run("sh", "-c", "cat; echo no >&2; exit 3", stdin=b"yes") == Done(3, "yes", "no\n")
    with pytest.raises(FileNotFoundError):
        run("/nonexistent")


def test_environment_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "SQUEUE_FORMAT", "SLURM_CLUSTERS", "BASH_ENV"):
        monkeypatch.setenv(name, "/tmp/theirs")
    monkeypatch.setenv("PATH", "bin:/usr/bin::.:/bin")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    said = run(sys.executable, "-c", "import os; print(os.getcwd(), dict(os.environ))").out
    assert said.startswith("/ {")
    assert eval(said[2:]) == {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
    }


def test_without_a_path_it_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ".")
    assert children.environment()["PATH"] == children.USUAL_PATH


def test_python_finds_our_modules_and_no_others() -> None:
    code = "import leased.base.errors, _gpulease; print(sys.flags.isolated, sys.argv)"
    assert run(*children.python(code, "a", "b")) == Done(0, "1 ['-c', 'a', 'b']\n", "")


def test_late_one_is_ended_with_what_it_started() -> None:
    # What it has started keeps its pipe open, and would be waited for without end.
    done = run("sh", "-c", "echo $$; sleep 600 & echo $!; wait", patience_s=0.5)
    assert done.fault == "it took longer than 0.5 s"
    for pid in map(int, done.out.split()):
        wait_until(f"process {pid} to end", functools.partial(gone, pid))


def test_a_child_leaves_a_process_behind_that_has_its_pipe() -> None:
    done = run("sh", "-c", "sleep 600 & echo $!", patience_s=0.5)
    os.kill(int(done.out), signal.SIGKILL)
    assert (done.status, done.fault) == (0, "it took longer than 0.5 s")


def test_a_child_that_writes_too_much_is_ended() -> None:
    done = run("sh", "-c", "while :; do echo no; done", most=1000)
    assert done.fault == "it said more than 1000 bytes"
    assert len(done.out) == 1000


def test_a_program_that_would_become_a_daemon_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    """The daemon is restarted meanwhile: the next one would start another beside it."""
    file = tmp_path / "pid"

    async def begin_and_give_up() -> None:
        starts = children.leave_behind(
            *("sh", "-c", f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 1000"),
            patience_s=LONG_S,
        )
        waits = asyncio.ensure_future(starts)
        while not file.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(begin_and_give_up())
    pid = int(file.read_text())
    try:
        wait_until("its end", lambda: gone(pid), timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

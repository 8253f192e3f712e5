"""MPS on one GPU: it is started, found again, started again when it has died, and heard."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.mps import control as of_control
from leased.mps.control import Control
from leased.mps.server import FIRST_PAUSE_S, SETTLED_S, Server
from leased.processes import procfs
from tests.conftest import ROOT
from tests.emugpu.mps_control import install
from tests.mps.conftest import UUID, kill
from tests.slurm.processes import wait_until


def look(server: Server, now: float) -> int:
    return asyncio.run(server.look(now))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def says(control: Control, words: str) -> None:
    with (control.logs / "server.log").open("a") as log:
        log.write(words)


def test_it_is_started_in_directories_that_users_can_reach_and_not_write(control: Control) -> None:
    server = Server(control, 0, "user")
    os.umask(before := os.umask(0o077))
    os.umask(0o077)  # as the unit has it
    try:
        look(server, 0.0)
    finally:
        os.umask(before)
    assert server.runs
    assert control.pid() is not None
    assert (mode(control.folder), mode(control.pipes), mode(control.logs)) == (0o755, 0o755, 0o700)
    assert mode(control.pipes / "control") == 0o666


def test_one_that_dies_is_started_again_at_growing_pauses_in_empty_directories(
    control: Control,
) -> None:
    server = Server(control, 0, "user")
    look(server, 0.0)
    now = 0.0
    for times, pause in enumerate((FIRST_PAUSE_S, 2 * FIRST_PAUSE_S), 1):
        (control.pipes / "stale").write_text("x")
        kill(control)
        look(server, now)
        assert (server.runs, server.ended) == (False, times)
        look(server, now + 0.9 * pause)
        assert control.pid() is None, "its pause is not over"
        now += pause
        look(server, now)
        assert server.runs
        assert not (control.pipes / "stale").exists()
    kill(control)
    look(server, now + SETTLED_S)
    assert server.again_at == now + SETTLED_S + FIRST_PAUSE_S, "it had run for long"


def test_the_next_daemon_finds_it(control: Control) -> None:
    look(Server(control, 0, "user"), 0.0)
    first = control.pid()
    says(control, "Server is handling a fatal GPU error.\n")
    again = Server(Control(control.program, control.folder, UUID), 0, "user")
    assert look(again, 0.0) == 0, "what the log said before has been counted before"
    assert again.runs
    assert control.pid() == first
    says(again.control, "Server is handling a fatal GPU error.\n")
    assert look(again, 1.0) == 1


def test_one_that_has_lost_its_pid_file_is_kept_and_no_second_one_is_started(
    control: Control,
) -> None:
    """Jobs may be its clients."""
    server = Server(control, 0, "user")
    look(server, 0.0)
    first = control.pid()
    assert first is not None
    (control.pipes / of_control.PID_FILE).unlink()
    try:
        look(server, 1.0)
        look(server, 1.0 + FIRST_PAUSE_S)
        assert server.runs
        assert control.pid() == first
    finally:
        if control.pid() != first:
            os.kill(first, signal.SIGKILL)


def test_a_server_that_outlives_it_is_not_taken_for_it(control: Control, short_dir: Path) -> None:
    """The kernel keeps 15 characters of a name, so both have the same one."""
    program = short_dir / "nvidia-cuda-mps-server"
    program.symlink_to(os.path.realpath(sys.executable))
    server = Server(control, 0, "user")
    look(server, 0.0)
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipes)}
    words = [str(program), "-ISc", "print('', flush=True); import time; time.sleep(1000)"]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE) as left:
        try:
            assert left.stdout is not None
            left.stdout.readline()
            kill(control)
            look(server, 1.0)
            look(server, 1.0 + FIRST_PAUSE_S)
            assert server.runs
            assert control.pid() != left.pid
        finally:
            left.kill()


def test_faults_are_counted_once_also_where_a_line_comes_in_two_pieces(control: Control) -> None:
    server = Server(control, 0, "user")
    look(server, 0.0)
    found = []
    for words in ("Client connected\nServer is handling a fatal G", "PU error.\n", "more\n"):
        says(control, words)
        found.append(look(server, 1.0))
    assert found == [0, 1, 0]
    assert server.faults == 1


def test_logs_stay_small(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_control, "LOG_MOST", 64)
    server = Server(control, 0, "user")
    look(server, 0.0)
    says(control, "Client connected\n" * 10)
    look(server, 1.0)
    assert (control.logs / "server.log").stat().st_size == 0
    says(control, "Server is handling a fatal GPU error.\n")
    assert look(server, 2.0) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\nexit 3\n", "ended with 3"),
        ("#!/bin/sh\nexit 0\n", "ended with 0"),
        (None, "cannot be started: No such file"),
    ],
)
def test_one_that_does_not_start_says_why_and_where_to_look(
    short_dir: Path, text: str | None, words: str
) -> None:
    program = short_dir / "nvidia-cuda-mps-control"
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    control = Control(program, short_dir / "mps", UUID)
    with pytest.raises(Refused, match=words):
        asyncio.run(control.start(any_user=False))
    server = Server(control, 0, "user")
    look(server, 0.0)
    assert words in server.why
    assert server.again_at == FIRST_PAUSE_S


def test_a_program_that_does_not_become_a_daemon_is_ended(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_control, "START_S", 0.2)
    program = short_dir / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    with pytest.raises(Refused, match="did not become a daemon in time"):
        asyncio.run(Control(program, short_dir / "mps", UUID).start(any_user=False))


@pytest.mark.parametrize("any_user", [False, True])
def test_a_release_with_another_interface_is_asked_for_the_one_that_we_speak(
    short_dir: Path, any_user: bool
) -> None:
    control = Control(install(short_dir, version=3), short_dir / "mps", UUID)
    asyncio.run(control.start(any_user))
    it_ends_when_told(control)


def it_ends_when_told(control: Control) -> None:
    """And is not killed, as one that does not listen."""
    pid = control.pid()
    assert pid is not None
    try:
        asyncio.run(control.tell_to_end())
        wait_until("its end", lambda: control.pid() is None, timeout=20)
    finally:
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)


VERSION_3 = """#!/bin/sh
export CUDA_MPS_PROTOCOL_VERSION=3
exec {program} "$@"
"""


def test_one_that_a_site_s_wrapper_starts_with_the_other_interface(short_dir: Path) -> None:
    """For one user at a time it works. The option for all users is another one there."""
    wrapper, place = short_dir / "nvidia-cuda-mps-control", short_dir / "program"
    place.mkdir()
    wrapper.write_text(VERSION_3.format(program=install(place)))
    wrapper.chmod(0o755)
    control = Control(wrapper, short_dir / "mps", UUID)
    with pytest.raises(Refused, match="ended with 1"):
        asyncio.run(control.start(any_user=True))
    asyncio.run(control.start(any_user=False))
    it_ends_when_told(control)


def test_one_that_a_program_of_the_site_s_own_has_started(
    short_dir: Path, control: Control
) -> None:
    """Also where the next daemon is told of another program: jobs may be its clients."""
    wrapper = short_dir / "site-mps"
    wrapper.write_text(f'#!/bin/sh\nexec {control.program} "$@"\n')
    wrapper.chmod(0o755)
    own = Control(wrapper, control.folder, UUID)
    asyncio.run(own.start(any_user=False))
    assert own.pid() is not None
    again = Server(control, 0, "user")
    look(again, 0.0)
    assert again.control.pid() == own.pid()
    wrapper.rename(short_dir / "site")
    assert Control(short_dir / "site", control.folder, UUID).pid() == own.pid()


WITHOUT_A_PID_FILE = """#!/usr/bin/python3 -I
import sys
sys.path[:0] = [{root!r}]
from tests.emugpu import mps_control
mps_control.PID_FILE = "../started"
def serve(self, serve=mps_control.Control.serve):
    mps_control.PID_FILE = "none"  # that of its start stays for the test
    serve(self)
mps_control.Control.serve = serve
mps_control.daemon(False) if "-d" in sys.argv else mps_control.command([])
"""


@pytest.mark.parametrize("cancelled", [False, True])
def test_one_that_serves_without_a_pid_file_is_not_left_behind(
    control: Control, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Its start was broken off: the program itself failed, or the daemon before this one ended. The
    next start keeps it, so that its end ends it."""
    good = control.program.read_text()
    control.program.write_text(WITHOUT_A_PID_FILE.format(root=str(ROOT)))
    with monkeypatch.context() as patch:
        if cancelled:
            patch.setattr(Control, "tell_to_end", lambda _: asyncio.sleep(0))
        with pytest.raises(Refused):
            asyncio.run(control.start(any_user=False))
    pid = int((control.folder / "started").read_text())
    if cancelled:
        control.program.write_text(good)
        asyncio.run(control.start(any_user=False))
        assert control.pid() == pid
        asyncio.run(control.quit())
    wait_until("its end", lambda: has_ended(pid), timeout=30)


def has_ended(pid: int) -> bool:
    found = procfs.stat(pid)
    return found is None or found.state in (procfs.ZOMBIE, procfs.DEAD)


def test_another_process_with_its_number_is_not_taken_for_it(control: Control) -> None:
    control.pipes.mkdir(parents=True)
    (control.pipes / of_control.PID_FILE).write_text(f"{os.getpid()}\n")
    assert control.pid() is None


def test_another_users_is_not_taken_for_it(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(Server(control, 0, "user"), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr("leased.processes.procfs.real_uid", lambda _: os.getuid() + 1)
        assert control.pid() is None
    assert control.pid() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is in danger of others' programs")
def test_a_program_that_others_may_change_is_not_started(control: Control) -> None:
    control.program.chmod(0o777)
    with pytest.raises(Refused, match=r"daemon\.mps_control: "):
        asyncio.run(control.start(any_user=False))
    assert not control.pipes.exists()

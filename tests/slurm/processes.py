"""Daemons that tests start: under a private prefix, in the foreground, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.support.template import TEMPLATES, Child

FIRST_STEP_S, STEP_S = 0.01, 0.05
STEP_GROWTH = 1.3
# A question may be a program of Slurm's or systemd's. So many times as long as it took it is not
# asked again, since others need the processor too.
REST = 4
MOST_REST_S = 1.0


class StopError(RuntimeError):
    """A daemon has not ended as it should."""


class StartError(RuntimeError):
    """A daemon did not come up; the text has the end of its log."""


def wait_until(
    what: str, condition: Callable[[], bool], *, timeout: float = 120.0, step: float = STEP_S
) -> None:
    """Return when the condition holds; TimeoutError naming `what` after so many seconds.

    It is asked often at first, and every `step` seconds when it takes long; more seldom if the
    question itself does. A shorter step than the usual one is kept whatever the question takes.
    """
    end = time.monotonic() + timeout
    pause, rest = min(step, FIRST_STEP_S), REST if step >= STEP_S else 0
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > end:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(max(pause, min(MOST_REST_S, rest * (now - asked))))
        pause = min(step, pause * STEP_GROWTH)


@contextlib.contextmanager
def notified(path: Path) -> Iterator[socket.socket]:
    """A socket where a daemon finds what stands for its service manager."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        yield notify
    path.unlink(missing_ok=True)


def says_ready(notify: socket.socket) -> bool:
    """Whether the next thing that it has said is that it is ready."""
    return bool(select.select([notify], [], [], 0)[0]) and b"READY=1" in notify.recv(4096)


def start(
    command: Sequence[str], env: Mapping[str, str], out: int, pass_fds: Sequence[int] = ()
) -> Child:
    """Start a program in a session of its own; out: the file for all that it prints."""
    if template := TEMPLATES.for_start(command, env):
        return template.start(command, env, out, pass_fds)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        env=dict(env),
        start_new_session=True,
        pass_fds=pass_fds,
    )


@dataclass
class Daemon:
    """One running daemon and its log."""

    name: str
    process: Child
    log: Path
    _started: ClassVar[list[Daemon]] = []

    @classmethod
    def with_logs(cls) -> list[Daemon]:
        """Those that this process has started and whose logs exist, in the order of the starts."""
        cls._started[:] = [daemon for daemon in cls._started if daemon.log.exists()]
        return list(cls._started)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Daemon:
        """Start it. A Ctrl-C reaches us first, since its session is another one."""
        with log.open("ab") as out:
            process = start(command, os.environ if env is None else env, out.fileno(), pass_fds)
        daemon = cls(name, process, log)
        cls._started.append(daemon)
        return daemon

    def running(self) -> bool:
        return self.process.poll() is None

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, condition: Callable[[], bool], timeout: float = 120.0) -> None:
        """Wait until the condition holds; StartError with its log if it ends or is late."""

        def ready() -> bool:
            if not self.running():
                raise StartError(f"{self.name} ended at its start:\n{self.tail()}")
            return condition()

        try:
            wait_until(f"{self.name} to be ready", ready, timeout=timeout)
        except TimeoutError as fault:
            raise StartError(f"{fault}:\n{self.tail()}") from None

    def wait_notified(self, notify: socket.socket, timeout: float) -> None:
        """Wait until it says that it is ready; StartError with its log if it ends or is late."""
        end = time.monotonic() + timeout
        ended = os.pidfd_open(self.process.pid)
        try:
            while not says_ready(notify):
                woken = select.select([notify, ended], [], [], max(end - time.monotonic(), 0))[0]
                if ended in woken:
                    self.process.wait()
                    raise StartError(f"{self.name} ended at its start:\n{self.tail()}")
                if not woken:
                    raise StartError(f"{self.name} was late ({timeout:g} s):\n{self.tail()}")
        finally:
            os.close(ended)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def stop(self, timeout: float = 120.0) -> None:
        """SIGTERM; StopError with its log, after a SIGKILL, for one that does not end in time."""
        if self.running():
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise StopError(
                f"{self.name} had not ended {timeout:g} s after SIGTERM:\n{self.tail()}"
            ) from None

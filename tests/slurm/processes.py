"""Daemons that tests start: under a private prefix, in the foreground, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

FIRST_STEP_S = 0.01
STEP_GROWTH = 1.3


class StopError(RuntimeError):
    """A daemon has not ended as it should."""


class StartError(RuntimeError):
    """A daemon did not come up; the text has the end of its log."""


def wait_until(
    what: str, condition: Callable[[], bool], *, timeout: float = 120.0, step: float = 0.05
) -> None:
    """Return when the condition holds; TimeoutError naming `what` after so many seconds.

    It is asked often at first, and every `step` seconds when it takes long.
    """
    end = time.monotonic() + timeout
    pause = min(step, FIRST_STEP_S)
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(pause)
        pause = min(step, pause * STEP_GROWTH)


@dataclass
class Daemon:
    """One running daemon and its log."""

    name: str
    process: subprocess.Popen[bytes]
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
        """Start it in a session of its own, so that a Ctrl-C reaches us first."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env) if env is not None else None,
                start_new_session=True,
                pass_fds=pass_fds,
            )
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

"""Python programs that tests start again and again begin in a process that has their imports done.

gpu-leased needs a third of a second of processor time to start, nearly all of it for imports, and a
run of the tests starts it hundreds of times. So each process that runs tests has a template: a
child that has imported the daemon and waits (`template_program.py`). It forks for each start, sets
up what an exec would have, and runs the module as `python -m` does.

What differs from a real start: /proc/PID/cmdline and environ are the template's, the new
process is its child, so the template tells how it has ended, and it ends without freeing what its
modules have. Whoever needs those, or measures a
start, starts the program itself; so do the tests of the units.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.support import leaks

# Read by the interpreter or the loader at a start: the template has read its own.
AT_A_START = ("PYTHON", "LD_PRELOAD")
OF_NO_MATTER = ("PYTHONUNBUFFERED",)  # daemons write to their logs without a buffer


class Child(Protocol):
    """What tests need of a program that they have started, as subprocess.Popen has it."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


@dataclass
class Forked:
    """A program that came from the template."""

    pid: int
    command: Sequence[str]
    template: Template = field(repr=False)
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self.template.ask({"ended": self.pid}, [])
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """TimeoutExpired as of subprocess: it has not ended within so many seconds."""
        if self.poll() is None:
            handle = os.pidfd_open(self.pid)
            try:
                if not select.select([handle], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.command, timeout or 0)
            finally:
                os.close(handle)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Template:
    """The template of this process."""

    def __init__(self) -> None:
        self.asked = threading.Lock()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: text for name, text in os.environ.items() if name != leaks.MARK}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{__name__}_program", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        leaks.keep(self.process.pid, self.socket.fileno())

    def serves(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether the command, started here, is what a real start of it would be."""
        return list(command[:2]) == [sys.executable, "-m"] and at_a_start(env) == at_a_start(
            os.environ
        )

    def start(
        self, command: Sequence[str], env: Mapping[str, str], out: int, pass_fds: Sequence[int]
    ) -> Forked:
        """As a Popen of the command in a session of its own, with `out` for all that it writes."""
        request = {
            "module": command[2],
            "arguments": list(command[3:]),
            "env": dict(env),
            "directory": str(Path.cwd()),
            "umask": umask(),
            "numbers": [1, 2, *pass_fds],
        }
        pid = self.ask(request, [out, out, *pass_fds])
        assert pid is not None
        leaks.note_start(pid)
        return Forked(pid, command, self)

    def ask(self, request: Mapping[str, Any], fds: Sequence[int]) -> int | None:
        """The template's answer."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        with self.asked:
            self.socket.sendmsg([json.dumps(request).encode()], [rights] if fds else [])
            answer = self.socket.recv(64)
        if not answer:
            raise RuntimeError(f"the template of tests ended: {self.process.wait(60)}")
        found: int | None = json.loads(answer)
        return found

    def close(self) -> None:
        self.socket.close()
        self.process.wait(60)


def at_a_start(env: Mapping[str, str]) -> dict[str, str]:
    """What of an environment counts before the first line of a program runs."""
    return {n: t for n, t in env.items() if n.startswith(AT_A_START) and n not in OF_NO_MATTER}


def umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


class Templates:
    """Of this process: none until `use()` is called, then one, made when it is first needed."""

    def __init__(self) -> None:
        self.in_use = False
        self.made: Template | None = None

    def use(self) -> None:
        self.in_use = True

    def for_start(self, command: Sequence[str], env: Mapping[str, str]) -> Template | None:
        """The template for this command; None: it is to be started for real."""
        if not self.in_use:
            return None
        self.made = self.made or Template()
        return self.made if self.made.serves(command, env) else None

    def end(self) -> None:
        self.in_use = False
        if self.made is not None:
            self.made.close()
            self.made = None


TEMPLATES = Templates()

"""The programs that we start: Slurm's commands, and Python for what may end its own process.

Each runs in / with an environment that we make, never the caller's: root runs
`gpu-leasectl` in directories and with variables that users may have a hand in.
One that takes too long or says too much is ended, with all that it has started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import _gpulease

import leased
from leased.base.waiting import is_done_within

PATIENCE_S = 30.0
REAP_S = 1.0
OUTPUT_MOST = 4 << 20  # bytes; squeue's line about a job has some 20
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")  # where Slurm's configuration is
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables of a child: a path without relative places, where Slurm is, and `more`."""
    given = os.environ.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(place for place in given if place.startswith("/"))
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"PATH": path or USUAL_PATH, "LC_ALL": "C.UTF-8"} | kept | dict(more or {})


def python(code: str, *arguments: str) -> list[str]:
    """The command that runs `code` in a Python that finds this package and no other places.

    Isolated: neither the working directory, nor PYTHONPATH, nor a user's packages.
    """
    ours = [Path(leased.__file__).parents[1], Path(_gpulease.__file__).parent]
    places = [str(place.resolve()) for place in ours]
    return [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path[:0] = {places!r}; {code}",
        *arguments,
    ]


@dataclass(frozen=True)
class Done:
    """A program's end. status: -1 where we ended it. fault: why we did, a sentence; "" where it
    ended by itself."""

    status: int
    out: str
    err: str
    fault: str = ""


Take = Callable[[bytes], None]


class _Child(asyncio.SubprocessProtocol):
    """Collects what a program prints, up to `most` bytes of each stream; or gives its output to
    `take`."""

    def __init__(self, most: int, take: Take | None):
        self.most = most
        self.take = take
        self.said = {1: bytearray(), 2: bytearray()}
        loop = asyncio.get_running_loop()
        self.fault = loop.create_future()  # "": it has ended
        self.exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1 and self.take is not None:
            self._give(self.take, data)
            return
        self.said[fd] += data
        if len(self.said[fd]) > self.most and not self.fault.done():
            self.fault.set_result(f"it said more than {self.most} bytes")

    def _give(self, take: Take, data: bytes) -> None:
        if self.fault.done():
            return
        try:
            take(data)
        except Exception as fault:
            self.fault.set_exception(fault)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        # Its pipes are closed too: whoever it started and left behind may have kept them.
        if not self.fault.done():
            self.fault.set_result("")

    def text(self, fd: int) -> str:
        return self.said[fd][: self.most].decode(errors="replace")


async def run(
    *command: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    patience_s: float | None = None,
    most: int = OUTPUT_MOST,
    take: Take | None = None,
) -> Done:
    """Run a program until it ends, or for patience_s seconds. OSError: it cannot be started.

    env: variables that it gets besides environment(). patience_s: None stands for PATIENCE_S.
    take: gets what it prints, piece by piece, of which then nothing is kept; what it raises ends
    the program, and is raised.
    """
    patience_s = PATIENCE_S if patience_s is None else patience_s
    transport, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Child(most, take), *command, cwd="/", env=environment(env), start_new_session=True
    )
    try:
        fed = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        fed.write(stdin)
        fed.write_eof()
        in_time = await is_done_within(child.fault, patience_s)
        fault = child.fault.result() if in_time else f"it took longer than {patience_s:g} s"
    finally:
        status = transport.get_returncode()
        if status is None:  # so its number is no other group's
            with suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            # Otherwise its end is reported to a loop that has ended. It may hang in the kernel.
            await is_done_within(child.exited, REAP_S)
        transport.close()
    return Done(-1 if status is None else status, child.text(1), child.text(2), fault)


async def leave_behind(
    *command: str, env: Mapping[str, str] | None = None, patience_s: float
) -> int | None:
    """Run a program that becomes a daemon, until it itself ends; None: it has not in patience_s
    seconds, and was ended, as it is if the caller is cancelled. What it prints is lost. OSError: it
    cannot be started.

    Others may read and search the files that it makes, whatever this process' own umask is.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env=environment(env),
        start_new_session=True,
        umask=0o022,
    )
    ended = asyncio.ensure_future(process.wait())
    try:
        if await is_done_within(ended, patience_s):
            return ended.result()
    finally:
        if process.returncode is None:  # not in time, or who waits for it is cancelled
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await is_done_within(ended, REAP_S)
            ended.cancel()
    return None


def run_and_wait(
    *command: str,
    env: Mapping[str, str] | None = None,
    patience_s: float,
    most: int = OUTPUT_MOST,
    take: Take | None = None,
) -> Done:
    """run() for a program without an event loop."""
    return asyncio.run(run(*command, env=env, patience_s=patience_s, most=most, take=take))

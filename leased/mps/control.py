"""NVIDIA's control program for the MPS servers of one GPU: its directories, start and end.

Each GPU has a control program of its own, so that a fault or a restart concerns that GPU alone. It
starts a server when the first process of a job comes. It lives on when the daemon ends, as the jobs
do, and the next daemon finds it by its pid file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from leased.base import children
from leased.base.errors import Refused
from leased.config import trusted_files
from leased.processes import procfs

START_S = 10.0
ENDING_S, ENDING_LOOKS = 2.0, 40
COMM_MOST = 15  # characters of a process' name, as the kernel keeps it
NAME = "nvidia-cuda-mps-control"  # NVIDIA's program, which a program of a site's own may start
PID_FILE = "nvidia-cuda-mps-control.pid"
SOCKET = "control"  # in the directory of its pipes
LOGS = ("control.log", "server.log")
SERVER = b"nvidia-cuda-mps-server"  # the program of its servers
LOG_MOST = 4 << 20  # bytes of a log; it lies in memory
LOOK_MOST = 1 << 20  # bytes of a log that are read at a look
ANY_USER = "-multiuser-server"
# The interface that we speak: releases from 615 on have another one as well (MPS v3), and a later
# one may have that as its default. The variable goes before the program's own option.
VERSION = {"CUDA_MPS_PROTOCOL_VERSION": "2"}
# How it is told to end; the second one is of the other interface, which a wrapper of a site's may
# have asked for. What is asked later follows the one that runs.
QUITS = (((), b"quit -t 1\n"), (("-q",), b""))
# What the server writes when a client's fault has ended all work on the GPU.
FAULT = b"fatal GPU error"


@dataclass
class Control:
    """program: nvidia-cuda-mps-control. folder: of all GPUs. read: bytes of the server's log that
    have been read; None: what is there is old."""

    program: Path
    folder: Path
    uuid: str
    read: int | None = None

    @property
    def pipes(self) -> Path:
        """The directory in which clients find the control program."""
        return self.folder / self.uuid

    @property
    def logs(self) -> Path:
        return self.folder / f"{self.uuid}.log"

    def pid(self) -> int | None:
        """The control program's process; None: it does not run."""
        text = (procfs.whole(self.pipes / PID_FILE, 32) or b"").strip()
        pid = int(text) if text.isdigit() else 0
        return pid if pid and self._is_one(pid) else None

    def _is_one(self, pid: int) -> bool:
        """Whether the process is a control program of this user's."""
        found = procfs.stat(pid)
        if found is None or found.state in (procfs.ZOMBIE, procfs.DEAD):
            return False
        named = procfs.command(pid) in (NAME[:COMM_MOST], self.program.name[:COMM_MOST])
        # Its servers have the same name, cut off so, and outlive it where it is killed.
        program = (procfs.command_line(pid) or b"").split(b"\0")[0]
        ours = procfs.real_uid(pid) == os.getuid()
        return named and ours and not program.endswith(SERVER)

    def _orphan(self) -> int | None:
        """One that serves these pipes, though its pid file is gone; None: there is none. Jobs may
        be its clients, and with a second one there would be two servers on the GPU."""
        if not (self.pipes / SOCKET).exists():
            return None
        pids = (int(each.name) for each in procfs.PROC.iterdir() if each.name.isdecimal())
        mark = os.fsencode(f"CUDA_MPS_PIPE_DIRECTORY={self.pipes}")
        ours = (pid for pid in pids if self._is_one(pid))
        return next((pid for pid in ours if mark in procfs.environment(pid)), None)

    def takes_any_user(self) -> bool:
        """Whether one that runs was started so that one server takes clients of all users."""
        pid = self.pid()
        words = (procfs.command_line(pid) or b"").split(b"\0") if pid is not None else []
        return os.fsencode(ANY_USER) in words

    async def start(self, any_user: bool) -> bool:
        """Start it, in empty directories. any_user: one server takes clients of all users. False:
        one that runs and has lost its pid file is kept. Refused: it does not start."""
        trusted_files.check(self.program, "daemon.mps_control")
        try:
            if orphan := self._orphan():
                (self.pipes / PID_FILE).write_text(f"{orphan}\n")
                return False
            self._empty()
            status = await children.leave_behind(
                *(str(self.program), "-d", *([ANY_USER] if any_user else [])),
                env=self._environment(),
                patience_s=START_S,
            )
        except OSError as fault:
            raise Refused(
                f"{self.program} cannot be started: {fault.strerror}",
                "install NVIDIA's MPS, or set daemon.mps_control in gpu-leased.toml",
            ) from None
        if status or self.pid() is None:
            await self.tell_to_end()
            how = "did not become a daemon in time" if status is None else f"ended with {status}"
            raise Refused(f"{self.program} {how}", f"see {self.logs}/control.log")
        return True

    async def quit(self) -> None:
        """End it with its servers, and remove its directories. One that does not end is killed."""
        await self.tell_to_end()
        for _ in range(ENDING_LOOKS):
            if self.pid() is None:
                break
            await asyncio.sleep(ENDING_S / ENDING_LOOKS)
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._remove()

    async def tell_to_end(self) -> None:
        """Also one that serves but has no pid file: its start was broken off before that."""
        if not (self.pipes / SOCKET).exists():
            return
        env = self._environment()
        for options, words in QUITS:
            with contextlib.suppress(OSError):
                done = await children.run(
                    *(str(self.program), *options),
                    env=env,
                    stdin=words,
                    patience_s=START_S,
                    most=1 << 16,
                )
                if not done.status or done.fault:
                    return

    def faults(self) -> int:
        """How many faults the server has written of since the last look. Its logs stay small."""
        found = b""
        try:
            with (self.logs / LOGS[1]).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = size if self.read is None else self.read
                start = start if start <= size else 0  # it has been cut
                file.seek(start)
                found = file.read(LOOK_MOST)
                self.read = start + len(found)
        except OSError:
            self.read = 0
        whole = found[: found.rfind(b"\n") + 1]
        self.read -= len(found) - len(whole) if len(found) < LOOK_MOST else 0
        self._cut()
        return whole.count(FAULT)

    def _environment(self) -> dict[str, str]:
        return VERSION | {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
            "CUDA_VISIBLE_DEVICES": self.uuid,
        }

    def _empty(self) -> None:
        """Directories without what one that was killed has left. Servers run as their clients'
        users, who have to reach the pipes."""
        self._remove()
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for place, mode in ((self.folder, 0o755), (self.pipes, 0o755), (self.logs, 0o700)):
            place.mkdir(mode=mode, exist_ok=True)
            place.chmod(mode)
        self.read = 0

    def _remove(self) -> None:
        for place in (self.pipes, self.logs):
            shutil.rmtree(place, ignore_errors=True)

    def _cut(self) -> None:
        """A user who starts many processes fills no memory with their lines."""
        for name in LOGS:
            path = self.logs / name
            try:
                if path.stat().st_size > LOG_MOST:
                    os.truncate(path, 0)
            except OSError:
                continue

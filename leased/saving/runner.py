"""gpu-leasectl run: starts a program, or restores it from its last checkpoint, and stays with it.

It saves the program when Slurm ends the job to requeue it (SIGTERM), and when gpu-leasectl
checkpoint asks for it, on sockets without a file, one for each name of the job, whose names have
that and the user; each side looks whose process the other one is. What it starts ignores SIGTERM,
so that it is there to be saved: a program that handles SIGTERM itself makes its own checkpoint.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from leased.base import children
from leased.base.errors import NoAnswer, Refused
from leased.processes import procfs
from leased.processes.identity import peer_of
from leased.saving.asking import LONGEST, holder, socket_name
from leased.saving.directory import Directory
from leased.saving.saver import ProgramLost, Saver
from leased.slurm import slurmconf

SLURM_S = 10.0


class Runner:
    """directory: where its checkpoints are. names: of the job (job_names.own())."""

    def __init__(self, directory: Path, saver: Saver, names: Sequence[str]):
        self._directory = Directory(directory)
        self._saver = saver
        self._names = names
        self._job = names[0]
        self._root = 0
        self._stops = False

    def run(self, command: Sequence[str]) -> int:
        """Returns the exit status of the program; Refused: it cannot be started or restored."""
        self._directory.make()
        wakes, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the program inherits
        with ExitStack() as stack:
            asks = [stack.enter_context(sock) for sock in self._listening()]
            self._begin(command)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, lambda *_: None)
            return self._loop(wakes, asks)

    def _listening(self) -> Iterator[socket.socket]:
        """For each name of the job. The first one is its own: who has that already is another
        runner of the job, or of a user who wants it to fail."""
        for name in self._names:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                sock.bind(socket_name(name, os.geteuid()))
                sock.listen()
                yield sock
            except OSError as fault:
                sock.close()
                if name != self._job:
                    continue
                if holder(name, os.geteuid()) == os.geteuid():
                    raise Refused(
                        f"job {name} has a program that can be saved already ({fault})"
                    ) from None
                _say(
                    f"cannot be saved by gpu-leasectl checkpoint ({fault}: a process of another "
                    "user has the socket); it is saved when Slurm ends the job to requeue it"
                )

    def _begin(self, command: Sequence[str]) -> None:
        restored = self._saver.restore(self._directory)
        if restored is not None:
            self._root = restored
            _say(f"goes on from its checkpoint in {self._directory.path}")
            return
        try:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as fault:
            raise Refused(f"{command[0]}: {fault.strerror}") from None
        self._root = started.pid
        started.returncode = 0  # it is waited for here

    def _loop(self, wakes: socket.socket, asks: Sequence[socket.socket]) -> int:
        status = self._ended()
        while status is None:
            ready, _, _ = select.select([wakes, *asks], [], [])
            signals = wakes.recv(LONGEST) if wakes in ready else b""
            if signal.SIGTERM in signals:
                self._terminated()
            if asked := [sock for sock in asks if sock in ready]:
                self._serve(asked[0])
            status = self._ended()
        if not self._stops:
            self._directory.remove()
        return status

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self._root, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    # -- saving ----------------------------------------------------------------------

    def _terminated(self) -> None:
        """Slurm ends the job: it is saved if it may begin again, and ends."""
        state = _state_of(self._job)
        if state.startswith("CANCELLED"):
            self._stops = False
            self._kill()
            return
        try:
            told = self._save(self._directory, stop=True)
            _say(f"is saved in {self._directory.path}: {told['seconds']:g} s")
        except (Refused, NoAnswer) as fault:
            _say(f"cannot be saved, and ends: {fault}")
            self._stops = self._directory.complete.exists()
            self._kill()

    def _save(self, directory: Directory, *, stop: bool) -> dict[str, Any]:
        try:
            told = self._saver.save(self._root, directory, stop=stop)
        except ProgramLost:
            self._stops = self._directory.complete.exists()
            raise
        self._stops = stop
        return told

    def _kill(self) -> None:
        for pid in procfs.family(self._root):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _serve(self, asks: socket.socket) -> None:
        connection, _ = asks.accept()
        with connection, suppress(OSError):
            if peer_of(connection).uid not in (0, os.geteuid()):
                return
            connection.settimeout(1.0)
            connection.send(json.dumps(self._answer(connection.recv(LONGEST))).encode())

    def _answer(self, request: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(request)
            requeue = bool(asked["requeue"])
            directory = Directory(Path(asked["directory"]))
            if requeue and directory.path != self._directory.path:
                raise Refused(
                    f"the job goes on from {self._directory.path}, not from {directory.path}",
                    "leave --requeue out, or name that directory",
                )
            told = self._save(directory, stop=requeue)
            if requeue:
                self._requeue()
        except (Refused, NoAnswer) as fault:
            return {"error": str(fault), "hint": fault.hint}
        except (ValueError, KeyError, TypeError) as fault:
            return {"error": f"the request makes no sense: {fault}"}
        return {
            "directory": str(directory.path),
            "bytes": told["bytes"],
            "seconds": told["seconds"],
        }

    def _requeue(self) -> None:
        """Refused: Slurm does not; the program has ended, and the checkpoint is there."""
        why = "it is saved, but not requeued: {}"
        try:
            done = children.run_and_wait("scontrol", "requeue", self._job, patience_s=SLURM_S)
        except OSError as fault:
            raise Refused(why.format(fault)) from None
        if done.fault or done.status:
            raise Refused(why.format(done.fault or done.err.strip()))


def _state_of(job: str) -> str:
    """As Slurm says it; "": it does not."""
    said = slurmconf.ask("scontrol", "show", "job", "-o", job, env={}).split()
    return dict(word.split("=", 1) for word in said if "=" in word).get("JobState", "")


def _say(text: str) -> None:
    print(f"gpu-leasectl run: the program {text}", file=sys.stderr, flush=True)

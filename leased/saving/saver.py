"""Saves a tree of processes, with what they have on the GPU, and restores it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from leased.api.client import ask
from leased.base.errors import NoAnswer, Refused
from leased.processes import procfs
from leased.saving import bytes_file, criu, gpu
from leased.saving.bytes_file import Damaged
from leased.saving.directory import Directory
from leased.saving.hindrances import hindrances
from leased.saving.process import Interposer
from leased.saving.still import StillJob, take
from leased.wire.device_bytes import uuid_bytes

GPU_LIBRARY = "libcuda.so"


class NotRestored(Refused):
    """The checkpoint is as it was; nothing runs."""


class ProgramLost(Refused):
    """It cannot go on, and has been ended. What was saved before is as it was."""


class Saver:
    """root: of the tree. tenant_socket: of the daemon. job: its number in Slurm."""

    def __init__(self, tenant_socket: Path, job: int):
        self._socket, self._job = tenant_socket, job

    # -- saving ----------------------------------------------------------------------

    def save(self, root: int, directory: Directory, *, stop: bool) -> dict[str, Any]:
        """Save them all. stop: they end then, else they go on. Refused: they go on, and whatever
        was in the directory is as it was."""
        began = time.monotonic()
        pids = procfs.family(root)
        why = next(hindrances(pids), None)
        if why is not None:
            raise Refused(f"{why}, which cannot be saved", "see docs/moving.md")
        program = criu.find()
        directory.make(to_write=True)
        on_gpu = [pid for pid in pids if procfs.maps_file(pid, GPU_LIBRARY, begins=True)]
        with ExitStack() as stack:
            still = stack.enter_context(StillJob(self._socket, self._job)) if on_gpu else None
            try:
                told = self._save(root, pids, directory, program, still)
            except BaseException as fault:
                self._back(procfs.family(root), still, directory.latest())
                if not isinstance(fault, (OSError, Refused)):
                    raise
                text = str(fault) if isinstance(fault, Refused) else _words(fault)
                raise Refused(text, "the job goes on") from None
            if stop:
                _signal(pids, signal.SIGKILL)
            else:
                self._back(pids, still, directory.complete)
        return {**told, "seconds": round(time.monotonic() - began, 3)}

    def _save(
        self, root: int, pids: list[int], directory: Directory, program: str, still: StillJob | None
    ) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "job": str(self._job),
            "host": socket.gethostname(),
            "root": root,
            "stdio": [[file, procfs.open_file(root, file) or ""] for file in (1, 2)],
            "processes": [],
            "bytes": 0,
        }
        if still is not None:
            still.check_all_are_of(pids)
            self._check_room(directory, pids, still)
            manifest |= {"gpus": gpu.uuids(), "gpu": self._gpu()}
            for pid, process in still.processes.items():
                index = bytes_file.write(
                    process.memory.read, still.ranges[pid], directory.partial, str(pid)
                )
                manifest["processes"].append([pid, process.at])
                manifest["bytes"] += index.size
            still.give()
            gpu.checkpoint(still.processes)
        else:
            self._check_room(directory, pids, None)
        criu.dump(program, root, directory.partial / "images")
        directory.finish(manifest)
        return manifest

    def _check_room(
        self, directory: Directory, pids: Sequence[int], still: StillJob | None
    ) -> None:
        ranges = still.ranges if still is not None else {}
        copies = sum(size for of_one in ranges.values() for _, size in of_one)
        missing = sum(
            bytes_file.missing_bytes(directory.partial, str(pid), r) for pid, r in ranges.items()
        )
        directory.check_room(missing + max(0, sum(map(procfs.resident, pids)) - copies))

    @staticmethod
    def _back(pids: Sequence[int], still: StillJob | None, place: Path) -> None:
        """Have them go on here, whatever was done to them. place: where their bytes are."""
        _signal(pids, signal.SIGCONT)
        if still is None:
            return
        lost = gpu.back(still.processes)
        try:
            take(still.processes, lambda pid, process: _fill(process, place, pid))
        except (Damaged, OSError) as fault:
            _signal(pids, signal.SIGKILL)
            why = str(fault) if isinstance(fault, Damaged) else _words(fault)
            raise ProgramLost(
                f"memory cannot be read back: {why}; it is lost, and its program ends"
            ) from None
        if lost:
            raise Refused(f"the driver does not bring back process {lost[0]}", "cancel the job")

    def _gpu(self) -> str:
        """The UUID of the job's GPU on this node, in hex digits."""
        answer = ask(self._socket, {"op": "mine", "job_id": self._job})
        uuids = [g["uuid"] for job in answer["jobs"] for g in job["gpus"]]
        if len(uuids) != 1:
            raise Refused(f"the job has {len(uuids)} GPUs here")
        return uuid_bytes(uuids[0]).hex()

    # -- restoring -------------------------------------------------------------------

    def restore(self, directory: Directory) -> int | None:
        """Restore what is in the directory as children of this process; returns their root. None:
        there is nothing. NotRestored: it cannot be, and is as it was."""
        try:
            told = directory.manifest()
            if told is None:
                return None
            here = self._here(told, directory)
            program = criu.find()
            inherited = [(int(file), str(name)) for file, name in told["stdio"] if name]
            root = criu.restore(program, directory.complete / "images", inherited)
        except (Refused, NoAnswer, Damaged, OSError) as fault:
            raise NotRestored(f"{directory.path}: {fault}") from None
        try:
            self._fill(told, here, directory)
        except BaseException as fault:
            _signal(procfs.family(root), signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(root, 0)
            if isinstance(fault, (Refused, Damaged, OSError)):
                raise NotRestored(f"{directory.path}: {fault}") from None
            raise
        return root

    def _here(self, told: dict[str, Any], directory: Directory) -> str:
        """The GPU that the job has here; "": it needs none. Refused, Damaged: the checkpoint cannot
        be restored here."""
        if not told["processes"]:
            return ""
        for pid, _ in told["processes"]:
            bytes_file.verify(directory.complete, str(pid))
        if len(gpu.uuids()) < 1:
            raise Refused("there is no GPU on this node")
        return self._gpu()

    def _fill(self, told: dict[str, Any], here: str, directory: Directory) -> None:
        if not here:
            return
        with ExitStack() as stack:
            processes = {}
            for pid, at in told["processes"]:
                process = processes[int(pid)] = Interposer(int(pid), int(at))
                stack.callback(process.close)
            before = [] if told["gpus"] == gpu.uuids() else list(told["gpus"])
            gpu.restore_here(processes, before, told["gpu"], here)
            uuids = bytes.fromhex(told["gpu"]), bytes.fromhex(here)
            take(processes, lambda pid, p: _fill(p, directory.complete, pid), uuids)


def _fill(process: Interposer, place: Path, pid: int) -> None:
    bytes_file.restore(process.memory.write, place, str(pid))


def _words(fault: OSError) -> str:
    name = f"{fault.filename}: " if fault.filename else ""
    return f"{name}{fault.strerror}"


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

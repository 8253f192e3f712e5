"""Asks the kernel about processes. One that makes its reader wait delays no other question."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from leased.base.waiting import is_done_within
from leased.processes import procfs
from leased.processes.identity import process_id
from leased.processes.procfs import PROC
from leased.processes.stepds import Known
from leased.processes.stray import Process

log = logging.getLogger("gpu-leased")

ASK_S = 2.0  # for the maps of one process
STUCK = 16  # processes that may keep a thread waiting; beyond it no maps are read
NVIDIA = "/dev/nvidia"


class Questions:
    """A thread that asks the same question about some processes, one after the other."""

    def __init__(self, pids: Iterable[int], ask: Callable[[int], bool | None]):
        self.left = list(pids)
        self.ask = ask
        self.answers: dict[int, bool | None] = {}
        self.at = 0  # index of the process that is asked about now
        self.abandoned = False
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.left and not self.abandoned:
            self.at = self.left[0]
            self.answers[self.at] = self.ask(self.at)
            del self.left[0]
        with contextlib.suppress(RuntimeError):  # the daemon has ended
            self.loop.call_soon_threadsafe(self.done.set_result, None)

    async def hangs(self) -> bool:
        """Wait for all answers. True: one has not come within ASK_S."""
        while not self.done.done():
            before = len(self.left)
            if not await is_done_within(self.done, ASK_S) and len(self.left) == before:
                self.abandoned = True
                return True
        return False


class ProcessInspector:
    """real_gpu: processes that use a GPU have a file of NVIDIA's driver open."""

    def __init__(self, real_gpu: bool, proc: Path = PROC):
        self.real_gpu = real_gpu
        self.proc = proc
        self.interposer = ""  # its file name
        self.stuck: dict[int, threading.Thread] = {}  # by the process that it waits for

    async def describe(self, pids: Iterable[int], known: Known) -> dict[int, Process]:
        """By pid, these processes if they still run.

        A process whose maps cannot be read counts as one with the interposer: what was not seen is
        held against no process.
        """
        found = await asyncio.to_thread(self._plain, list(pids), known)
        maps = await self._interposed(list(found))
        return {
            pid: replace(process, interposed=maps.get(pid) is not False)
            for pid, process in found.items()
            if process_id(pid, self.proc) == process.id
        }

    def _plain(self, pids: list[int], known: Known) -> dict[int, Process]:
        """What the kernel itself knows of a process, without the process' help."""
        found: dict[int, Process] = {}
        for pid in pids:
            process = process_id(pid, self.proc)
            # A pid of NVML's that is of another pid namespace than ours names somebody else
            # here, who has no such file open.
            if process is None or (self.real_gpu and not procfs.has_open(pid, NVIDIA, self.proc)):
                continue
            uid, command = procfs.real_uid(pid, self.proc), procfs.command(pid, self.proc)
            if uid is not None and command is not None:
                step = known.step_of(pid, self.proc)
                found[pid] = Process(pid, process.start, uid, command, step, True)
        return found

    async def _interposed(self, pids: list[int]) -> dict[int, bool | None]:
        """Which have the interposer mapped."""
        self.stuck = {pid: thread for pid, thread in self.stuck.items() if thread.is_alive()}
        left = [pid for pid in pids if pid not in self.stuck]
        answers: dict[int, bool | None] = {}
        while left and len(self.stuck) < STUCK:
            questions = Questions(left, self._has_interposer)
            hangs = await questions.hangs()
            answers |= questions.answers
            left = questions.left[1:] if hangs else []
            if hangs:
                self.stuck[questions.at] = questions.thread
                log.error(
                    "the kernel does not say what process %d has mapped: until it does, it is not "
                    "known whether the process has the interposer",
                    questions.at,
                )
        return answers

    def _has_interposer(self, pid: int) -> bool | None:
        return procfs.maps_file(pid, self.interposer, self.proc)

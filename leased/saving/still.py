"""A job that the daemon keeps still, and its processes' interposers, while they are saved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased.api.client import ask
from leased.base.errors import NoAnswer, Refused
from leased.saving.bytes_file import Range
from leased.saving.process import Interposer, wait_until

DRAIN_S = 180.0
BEAT_S = 0.5


class StillJob:
    """Use it as a context: at its end the job may go on."""

    def __init__(self, socket: Path, job: int):
        self._socket, self._job = socket, job
        self.processes: dict[int, Interposer] = {}
        self.ranges: dict[int, list[Range]] = {}
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def _ask(self, op: str) -> dict[str, Any]:
        return ask(self._socket, {"op": op, "job_id": self._job})

    def __enter__(self) -> StillJob:
        self._ask("save")
        try:
            wait_until(self._is_listed, "the job does not come to rest", DRAIN_S)
            self.ranges = {pid: one.ranges() for pid, one in self.processes.items()}
        except BaseException as fault:
            self._end()
            if isinstance(fault, OSError):
                raise Refused(
                    f"a process of the job has ended, or cannot be saved by you: {fault.strerror}"
                ) from None
            raise
        self._beating.start()
        return self

    def _is_listed(self) -> bool:
        answer = self._ask("saving")
        if answer["state"] not in ("drains", "listed"):
            raise Refused(answer["why"] or "the job has ended")
        for pid, at in answer["processes"]:
            if pid not in self.processes:
                self.processes[pid] = Interposer(pid, at)
        return bool(answer["state"] == "listed")

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._beating.join()
        self._end()

    def _end(self) -> None:
        with suppress(Refused, NoAnswer):
            self._ask("saved")
        for process in self.processes.values():
            process.close()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with suppress(Refused, NoAnswer):
                self._ask("saving")
            for process in list(self.processes.values()):
                with suppress(OSError):
                    process.beat()

    def check_all_are_of(self, pids: Collection[int]) -> None:
        """Refused: a process of the job that uses the GPU is not among these."""
        others = self.processes.keys() - set(pids)
        if others:
            raise Refused(
                f"process {min(others)} of the job uses the GPU, and gpu-leasectl run has not "
                "started it"
            )

    def give(self) -> None:
        """Their copies are saved: they give up their memory, and their connections."""
        for process in self.processes.values():
            process.ask(lib.GL_SAVED_GIVE, lib.GL_SAVED_GIVEN)


def take(
    processes: dict[int, Interposer],
    fill: Callable[[int, Interposer], None],
    exchange: tuple[bytes, bytes] | None = None,
) -> None:
    """Let processes go on, those that have given up their memory with what `fill` writes there.
    exchange: the GPU that they had, and the one in its place (UUIDs)."""
    for pid, process in processes.items():
        if process.state() == lib.GL_SAVED_GIVE:
            wait_until(
                lambda p=process: p.state() == lib.GL_SAVED_GIVEN,  # type: ignore[misc]
                f"process {pid} does not answer",
                BEAT_S * 100,
            )
        if process.state() == lib.GL_SAVED_GIVEN:
            process.ask(lib.GL_SAVED_TAKE, lib.GL_SAVED_TAKEN)
            fill(pid, process)
        if exchange is not None:
            process.exchange(*exchange)
        if process.state() != lib.GL_SAVED_OVER:
            process.tell(lib.GL_SAVED_FILLED)

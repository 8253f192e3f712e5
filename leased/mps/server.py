"""Keeps MPS running on one GPU: starts it, finds it, starts it again, and hears of its faults."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from leased.base.errors import Refused
from leased.mps.control import Control
from leased.placement.api import ANY, USER

log = logging.getLogger("gpu-leased")

FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0  # before it is started again; twice as long each time
SETTLED_S = 60.0  # one that has run for so long is started again at once
NOT_YET = "it has not been started yet"
ENDED = "it has ended, and is started again"


@dataclass
class Server:
    """MPS on one GPU. index: Slurm's. allowed: whose jobs may be together (together.py). why: why
    it does not run; "": it runs. ended: how often it has ended by itself. faults: how often a fault
    of one client has ended the work of all. awaited_at: when a job last asked for it while the GPU
    was drained. Times are seconds of the monotonic clock."""

    control: Control
    index: int
    allowed: str
    why: str = NOT_YET
    ended: int = 0
    faults: int = 0
    since: float = 0.0  # when it last began to run
    again_at: float = 0.0
    awaited_at: float | None = None
    pause_s: float = FIRST_PAUSE_S

    @property
    def runs(self) -> bool:
        return not self.why

    async def look(self, now: float) -> int:
        """Start it if it does not run and is due. Returns how many faults there have been."""
        if self.control.pid() is None:
            self._note_end(now)
            if now >= self.again_at:
                await self._start(now)
            return 0
        if not self.runs:
            log.info("MPS runs on GPU %d already", self.index)
            self._keep()
            self._begins(now)
        found = self.control.faults()
        self.faults += found
        return found

    async def end(self, why: str) -> None:
        """End it, if it runs. It is started again at the next look."""
        self.why, self.again_at, self.pause_s = why, 0.0, FIRST_PAUSE_S
        if self.control.pid() is not None:
            await self.control.quit()
            log.info("MPS of GPU %d has been ended", self.index)

    def _note_end(self, now: float) -> None:
        if not self.runs:
            return
        self.ended += 1
        self.why = ENDED
        log.warning("MPS of GPU %d has ended; it is started again", self.index)
        if now - self.since >= SETTLED_S:
            self.pause_s = FIRST_PAUSE_S
        self._put_off(now)

    def _put_off(self, now: float) -> None:
        self.again_at = now + self.pause_s
        self.pause_s = min(2 * self.pause_s, MOST_PAUSE_S)

    async def _start(self, now: float) -> None:
        try:
            started = await self.control.start(self.allowed == ANY)
        except Refused as fault:
            if self.why != fault.sentence():
                log.error("MPS of GPU %d: %s", self.index, fault.sentence())
            self.why = fault.sentence()
            self._put_off(now)
            return
        log.info("MPS runs on GPU %d", self.index)
        if not started:
            self._keep()
        self._begins(now)

    def _keep(self) -> None:
        """Somebody else has started it, perhaps for others than may be together now: a job of a
        second user would wait in its first call of CUDA until those of the first have ended."""
        if self.control.takes_any_user():
            self.allowed = ANY
        elif self.allowed == ANY:
            self.allowed = USER

    def _begins(self, now: float) -> None:
        self.why, self.since = "", now

"""The daemon's status, asked for at most once a second, however many ask here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from leased.api.answers import Status
from leased.base.errors import Refused

log = logging.getLogger("gpu-leased-metrics")

FRESH_S = 1.0  # so old an answer is still given; the daemon's time is not the scrapers'
ANSWER_S = 3.0  # a scraper waits 10 s as a rule, and has to hear of a daemon that hangs


@dataclass
class Source:
    """ask: the daemon's status, or Refused. clock: seconds."""

    ask: Callable[[], Status]
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: Status | None = None
    _asked: float | None = None
    _fault: str = ""

    def status(self) -> Status | None:
        """None: the daemon does not answer. One thread asks while others wait for its answer."""
        with self._lock:
            if self._asked is None or self.clock() - self._asked >= FRESH_S:
                self._known = self._ask()
                self._asked = self.clock()
            return self._known

    def _ask(self) -> Status | None:
        try:
            answer = self.ask()
        except Refused as fault:
            self._say(fault.sentence())
            return None
        self._say("")
        return answer

    def _say(self, fault: str) -> None:
        """Log a fault once, and its end."""
        if fault != self._fault:
            log.warning("%s", fault or "gpu-leased answers again")
        self._fault = fault

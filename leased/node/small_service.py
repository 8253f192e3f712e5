"""How a service begins that is no daemon of leases: metrics, the placer."""

from __future__ import annotations

import logging
import signal
import threading

CANNOT_RUN, NOT_CONFIGURED = 1, 2  # exit statuses; the unit does not try again after the second


def begin(log: logging.Logger) -> threading.Event:
    """What it says goes to the journal. The event is set once the service is to end."""
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop

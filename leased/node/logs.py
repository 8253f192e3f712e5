"""Where the daemon's log lines go."""

from __future__ import annotations

import logging
import os

log = logging.getLogger("gpu-leased")


def set_up_logging(debug: bool) -> None:
    """The journal when systemd started us, standard error otherwise."""
    handler: logging.Handler
    if os.environ.get("JOURNAL_STREAM"):
        from systemd.journal import JournalHandler

        handler = JournalHandler(SYSLOG_IDENTIFIER="gpu-leased")
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.INFO)

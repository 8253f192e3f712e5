"""What earlier runs of jobs did, asked of Slurm's accounting beside the placer's loop.

It is asked once there are offline jobs that wait, and then each hour as long as there are some:
that can take minutes where there are many jobs, and no job waits for it meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from leased.matching.assign import is_possible
from leased.matching.profile import Kind, Profile
from leased.placer import marks
from leased.placer.model import View
from leased.slurm.job_profiles import ask

log = logging.getLogger("gpu-lease-placer")

AGAIN_S = 3600.0
OFFLINE = "class:offline"


class KnownProfiles:
    """env: variables of sacct."""

    def __init__(self, env: Mapping[str, str]):
        self.env = env
        self.found: Mapping[Kind, Profile] = {}
        self.due = 0.0  # monotonic
        self.asking: threading.Thread | None = None

    def added(self, view: View) -> View:
        """The view with what is known by now."""
        if is_possible() and time.monotonic() >= self.due and _wants(view):
            self.due = time.monotonic() + AGAIN_S
            self.asking = threading.Thread(target=self._ask, name="profiles", daemon=True)
            self.asking.start()
        return replace(view, profiles=self.found)

    def _ask(self) -> None:
        found = ask(self.env)
        if found is None:
            log.warning("sacct fails: offline jobs are matched by what is known already")
        else:
            self.found = found


def _wants(view: View) -> bool:
    marked = (marks.mark_of(job.admin_comment) for job in view.jobs if job.pending)
    return any(mark is not None and OFFLINE in mark.options for mark in marked)

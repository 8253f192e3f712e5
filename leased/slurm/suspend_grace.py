"""How long Slurm waits between the announcement of a suspension and the stop of the processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from leased.slurm import slurmconf

USUAL_S = 2
GRACE = re.compile(r"suspend_grace_time=(\d{1,5})", re.IGNORECASE)


def suspend_grace_ns(env: Mapping[str, str]) -> int:
    """suspend_grace_time of PreemptParameters in this node's slurm.conf, or Slurm's default."""
    path = slurmconf.find(env)
    conf = slurmconf.SlurmConf(path)
    if path is not None:
        with contextlib.suppress(OSError):
            conf.read(path)
    found = GRACE.search(conf.value("preemptparameters"))
    return (int(found[1]) if found else USUAL_S) * 1_000_000_000

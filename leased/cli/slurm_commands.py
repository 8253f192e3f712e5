"""What Slurm's commands get when gpu-leasectl runs them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from leased.base.errors import Refused
from leased.config import config

ZONE = re.compile(r"[A-Za-z0-9_/+-]{1,64}")


def environment(path: Path) -> dict[str, str]:
    """The daemon's Slurm, where the configuration at `path` names one; the time zone."""
    env = {}
    if "SLURM_CONF" not in os.environ:
        try:
            slurm_conf = config.load(path).slurm_conf
        except Refused:  # what is at fault there is no matter of this
            slurm_conf = None
        if slurm_conf:
            env["SLURM_CONF"] = str(slurm_conf)
    zone = os.environ.get("TZ", "")
    return env | {"TZ": zone} if ZONE.fullmatch(zone) else env

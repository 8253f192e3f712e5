"""Where a node is in the network, by Slurm's word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from leased.base import children
from leased.slurm.slurmconf import SlurmConf

ASK_S = 2.0
SAID = re.compile(r"\bNodeAddr=(\S+)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


async def of(name: str, env: Mapping[str, str], conf: Path | None) -> str:
    """The address of a node, or a name that stands for it: by slurmctld, else by slurm.conf, else
    the node's own name."""
    if not NAME.fullmatch(name):
        raise OSError(f"{name!r:.60} is no name of a node")
    command = ("scontrol", "--oneliner", "show", "node", name)
    try:
        done = await children.run(*command, env=env, patience_s=ASK_S)
        found = SAID.search(done.out) if done.status == 0 and not done.fault else None
    except OSError:
        found = None
    if found:
        return found[1]
    return _by_file(name, conf) or name


def _by_file(name: str, conf: Path | None) -> str:
    if conf is None:
        return ""
    read = SlurmConf(conf)
    try:
        read.read(conf)
    except OSError:
        return ""
    return read.node(name).get("nodeaddr", "")

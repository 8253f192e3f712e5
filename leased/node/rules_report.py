"""Tells gpu-lease-placer what this node allows: in the node's Comment in Slurm, beside what the
site has written there (daemon.tell_placer).

It is written when it changes, and again every few hours: the placer believes nothing that is older
than a day, since a node may have got an older release that writes nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from leased.admin import node_rules
from leased.admin.node_rules import NodeRules
from leased.admin.user_limits import UserLimits
from leased.config.config import Config
from leased.slurm import slurmconf
from leased.slurm.commands import Slurm
from leased.slurm.slurmconf import SlurmConf

log = logging.getLogger("gpu-leased")

LOOK_S = 5.0
RENEW_S = 4 * 3600.0
AGAIN_S = 60.0  # after a fault
WIDTH = 8192  # bytes of a Comment; a longer one is left alone
NONE = "(null)"  # so sinfo shows no Comment
UNREADABLE = "\ufffd"  # stands for bytes that are not UTF-8


class RulesReport:
    """Call beat() every LOOK_S. config, limits: those in force."""

    def __init__(
        self, slurm: Slurm, config: Callable[[], Config], limits: Callable[[], UserLimits]
    ):
        self.slurm = slurm
        self.config = config
        self.limits = limits
        self.told: NodeRules | None = None
        self.due = 0.0  # monotonic; when to write again what has not changed
        self.fault = ""

    async def beat(self) -> None:
        """Tell it, if that is due. A fault is logged when it begins."""
        wanted = self._wanted()
        if wanted is None and self.told is None:
            return
        if time.monotonic() < self.due and (self.fault or wanted == self.told):
            return
        try:
            await self._write(wanted)
        except OSError as fault:
            if str(fault) != self.fault:
                log.warning("gpu-lease-placer cannot be told what this node allows: %s", fault)
            self.fault, self.due = str(fault), time.monotonic() + AGAIN_S
        else:
            self.told, self.fault, self.due = wanted, "", time.monotonic() + RENEW_S

    def _wanted(self) -> NodeRules | None:
        config = self.config()
        return NodeRules(self.limits(), config.defaults) if config.tell_placer else None

    async def _write(self, rules: NodeRules | None) -> None:
        """OSError: Slurm does not take it, or the Comment cannot be written back."""
        name = self._name()
        before = await self._comment(name)
        after = node_rules.without(before)
        if rules is not None:
            after = node_rules.written(before, rules, int(time.time()))
        if after != before:
            await self._run("scontrol", "update", f"nodename={name}", f"comment={after}")

    def _name(self) -> str:
        """This node's name in Slurm."""
        path = slurmconf.find(os.environ, self.config().slurm_conf)
        if path is None:
            raise OSError("there is no slurm.conf; set daemon.slurm_conf")
        conf = SlurmConf(path)
        conf.read(path)
        name = conf.this_node()
        if name is None:
            raise OSError(f"{path} has no node for this host")
        return name

    async def _comment(self, name: str) -> str:
        """What stands there. sinfo prints a row of that width for each of the node's partitions."""
        out = await self._run("sinfo", "-h", "-a", "-n", name, "-O", f"Comment:{WIDTH}")
        row = out.encode()[:WIDTH]
        text = row.decode(errors="replace").rstrip()
        if not row:
            raise OSError(f"Slurm has no node {name}")
        if UNREADABLE in text or len(text.encode()) >= WIDTH:
            raise OSError(f"the Comment of {name} is too long, or is not UTF-8; make it shorter")
        return "" if text == NONE else text

    async def _run(self, *command: str) -> str:
        status, out, err = await self.slurm.run(*command)
        if status:
            words = " ".join(err.split())[:200] or f"exit status {status}"
            raise OSError(f"{command[0]} fails: {words}")
        return out

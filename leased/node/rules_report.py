"""Tells gpu-lease-placer what this node allows: in the node's Comment in Slurm, beside what the
site has written there (daemon.tell_placer).

It is written when it changes, and again every few hours: the placer believes nothing that is older
than a day, since a node may have got an older release that writes nothing. In between it is looked
for, since others may have overwritten it.

Slurm cannot change a Comment on the condition that it has not changed meanwhile. So it is read
directly before it is written, and again after that: what others write in between, some hundredths
of a second, is overwritten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from leased.admin import node_rules
from leased.admin.node_rules import NodeRules
from leased.admin.user_limits import UserLimits
from leased.config.config import Config
from leased.config.options import MPS
from leased.gpus.devices import Gpu
from leased.slurm import node_comment, slurmconf
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")

LOOK_S = 5.0
CHECK_S = 600.0  # so often it is looked for
RENEW_S = 4 * 3600.0
AGAIN_S = 60.0  # after a fault


@dataclass
class RulesReport:
    """Call beat() every LOOK_S. config, limits: those in force. gpus: that Slurm gives to jobs.

    told: the rules that have been written, and part: as which text, at which time of day. due:
    monotonic; when to look again for what has not changed.
    """

    slurm: Slurm
    config: Callable[[], Config]
    limits: Callable[[], UserLimits]
    gpus: Callable[[], Iterable[Gpu]]
    told: NodeRules | None = None
    part: str = ""
    told_at: float = 0.0
    due: float = 0.0
    fault: str = ""

    async def beat(self) -> None:
        """Tell it, if that is due. A fault is logged when it begins."""
        wanted = self._wanted()
        if wanted is None and self.told is None:
            return
        now = time.monotonic()
        same = wanted == self.told and not self._is_old()
        if now < self.due and (self.fault or same):
            return
        try:
            await self._tell(wanted, same=same)
        except OSError as fault:
            if str(fault) != self.fault:
                log.warning("gpu-lease-placer cannot be told what this node allows: %s", fault)
            self.fault, self.due = str(fault), now + AGAIN_S
        else:
            self.told, self.fault = wanted, ""

    def _wanted(self) -> NodeRules | None:
        config = self.config()
        if not config.tell_placer:
            return None
        modes = frozenset(device.space for device in (config.device, *config.devices.values()))
        return NodeRules(
            self.limits(),
            config.defaults,
            modes,
            config.classes.online,
            config.classes.offline,
            tuple(self._together(config)),
        )

    def _together(self, config: Config) -> Iterator[tuple[int, str]]:
        """Of the GPUs that are shared by MPS."""
        for gpu in self.gpus():
            settings = config.for_device(gpu.index, gpu.uuid)
            if settings.space == MPS:
                yield gpu.index, settings.mps_together

    def _is_old(self) -> bool:
        """Whether the time that was written is no longer near. The clock may have been set."""
        return abs(time.time() - self.told_at) >= RENEW_S

    async def _tell(self, rules: NodeRules | None, *, same: bool) -> None:
        """Write the rules. same: only if they no longer stand there. OSError: Slurm does not take
        it, or the Comment cannot be written back."""
        name = self._name()
        before = await node_comment.read(self.slurm.run, name)
        self.due = time.monotonic() + CHECK_S
        if same and node_rules.part(before) == self.part:
            return
        if same:
            log.info("what was written into the Comment of %s is no longer there", name)
        now = time.time()
        after = node_rules.without(before)
        if rules is not None:
            after = node_rules.written(before, rules, int(now))
        if after != before:
            await self._write(name, after)
        self.part, self.told_at = node_rules.part(after), now

    async def _write(self, name: str, comment: str) -> None:
        update = ("scontrol", "update", f"nodename={name}", f"comment={comment}")
        await node_comment.succeed(self.slurm.run, *update)
        stands = await node_comment.read(self.slurm.run, name)
        if stands.rstrip() != comment.rstrip():  # sinfo of 22.05 pads it
            log.warning("somebody else wrote the Comment of %s at the same time: look at it", name)
            self.due = 0.0

    def _name(self) -> str:
        """This node's name in Slurm."""
        return slurmconf.name_of_this_node(self.config().slurm_conf)

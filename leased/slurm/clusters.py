"""Which Slurm cluster the daemon serves: two clusters on a node have jobs with the same numbers.

A daemon asks one Slurm which jobs have ended, and tells it what they used. So jobs of one
cluster share the GPUs of a node, and jobs of another cluster are refused.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from leased.api import answers
from leased.base.errors import Refused
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")

NAMED = re.compile(r"^ClusterName\s*=\s*(\S+)\s*$", re.MULTILINE)
OTHERS = 16  # clusters whose refusals are counted


@dataclass
class Cluster:
    """own: the cluster's name as the daemon's own Slurm says it. first: the first job's cluster,
    which counts until that is known. refused: how many steps of each other cluster."""

    own: str | None = None
    first: str | None = None
    refused: dict[str, int] = field(default_factory=dict)
    asked: dict[str, str] | None = None  # the environment with which Slurm was asked

    @property
    def name(self) -> str | None:
        return self.own or self.first

    def admit(self, job_id: int, name: str) -> None:
        """A job of this cluster registers; "": its plugin names none. Refused: another cluster."""
        name = name.lower()  # as Slurm keeps it
        if not name:
            return
        if self.name is None:
            self.first = name
        if name != self.name:
            if name in self.refused or len(self.refused) < OTHERS:
                self.refused[name] = self.refused.get(name, 0) + 1
            raise Refused(
                f"job {job_id} is of the Slurm cluster {name}, but gpu-leased on this node serves "
                f"{self.name}",
                "let the jobs of one cluster share GPUs of a node, or set daemon.slurm_conf",
            )

    async def learn(self, slurm: Slurm) -> bool:
        """Ask the daemon's own Slurm for its cluster, once. False: it does not answer."""
        env = dict(slurm.env)
        if env == self.asked:
            return True
        try:
            _, out, _ = await slurm.run("scontrol", "show", "config")
        except OSError:
            return False
        found = NAMED.search(out)
        if found is None:
            return False
        own = found[1].lower()
        if self.name not in (None, own):
            log.error(
                "the Slurm cluster of this node is %s, but jobs of %s have registered: jobs of %s "
                "are refused from now on",
                *(own, self.name, self.name),
            )
        self.own, self.asked = own, env
        return True

    def status(self) -> answers.SlurmCluster:
        return {"name": self.name, "refused": dict(self.refused)}

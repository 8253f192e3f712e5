"""Whose jobs may be together on a GPU under MPS, where one job's fault ends the work of all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.base.errors import Refused
from leased.chains.membership import Joining, are_joined
from leased.placement.api import CHAIN, USER

APART_S = 3600.0  # users one of whom has ended the other's work are kept apart for so long
USERS_MOST = 16  # of one fault, that are kept apart: as many pairs as 120


class Coming(NamedTuple):
    """A job that asks to be there: its user, the UUIDs of its GPUs, and its chain."""

    uid: int
    gang: tuple[str, ...]
    chain: str


@dataclass
class Together:
    """until: by two users, the time until which their jobs are kept apart (s, monotonic)."""

    until: dict[frozenset[int], float] = field(default_factory=dict)

    def fault(self, users: Iterable[int], now: float) -> None:
        """A fault has ended the work of these users' jobs. It is not known whose fault it was."""
        self.until = {pair: at for pair, at in self.until.items() if at > now}
        for pair in itertools.combinations(sorted(set(users))[:USERS_MOST], 2):
            self.until[frozenset(pair)] = now + APART_S

    def check(
        self, index: int, allowed: str, job: Joining, there: Collection[Joining], now: float
    ) -> None:
        """Refused: the job may not be on the GPU beside those that are there. allowed: USER, CHAIN
        or ANY (placement/api.py)."""
        if allowed == CHAIN and not all(are_joined(job, other) for other in there):
            raise Refused(
                f"under MPS only jobs of one chain are on GPU {index} at once, and one that is no "
                f"part of {f'chain:{job.chain}' if job.chain else 'a chain of this job'} is there",
                "submit the job again when that has ended, name its chain (chain:NAME), or submit "
                "it for another node",
            )
        for other in sorted({one.uid for one in there} - {job.uid}):
            if allowed == USER:
                raise Refused(
                    f"under MPS only jobs of one user are on GPU {index} at once, and one of "
                    "another user is there",
                    "submit the job again when that has ended, or for another node",
                )
            left = self.until.get(frozenset((job.uid, other)), now) - now
            if left > 0:
                raise Refused(
                    f"on GPU {index} is a job of a user with whose jobs yours have lost work: a "
                    "fault of one has ended both under MPS",
                    f"submit the job again in {left / 60:.0f} minutes, or for another node",
                )

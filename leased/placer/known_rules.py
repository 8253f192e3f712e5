"""What each node allows, by what its daemon has written into the node's Comment.

A node whose daemon has written nothing, or nothing that can be believed, has no rules here: the
placer then takes it that the node allows everything and gives jobs nothing of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from leased.admin import node_rules
from leased.admin.job_class import class_of
from leased.admin.label_check import request_of
from leased.admin.node_rules import NodeRules, Unreadable
from leased.base import words
from leased.base.errors import Refused
from leased.config import options
from leased.config.job_sets import Owner
from leased.config.options import Options, Resolved
from leased.placer.model import Asked, Rules, View
from leased.slurm.nodes_json import GpuNode

log = logging.getLogger("gpu-lease-placer")

SHOWN = 20  # nodes that a line of the journal names


@lru_cache(maxsize=8192)
def asked(rules: NodeRules, text: str, owner: Owner) -> Asked:
    """What a job with these options, of this owner, asks of a GPU of such a node."""
    try:
        said = options.parse(text)
    except Refused as fault:
        return Asked(request_of(Resolved.of(options.Options(), rules.defaults)), fault.sentence())
    given = rules.limits.with_quantum(Resolved.of(said, rules.defaults), said)
    given = replace(given, job_class=class_of(given, said, owner, rules))
    try:
        rules.limits.check(given)
    except Refused as fault:
        return Asked(request_of(given), fault.sentence())
    return Asked(request_of(given), lacks_mode(said, rules.modes), dict(rules.together))


def lacks_mode(said: Options, modes: frozenset[str]) -> str:
    """Why no GPU of a node with these modes is for a job with these options; "": one may be."""
    part = said.sm is not None and said.sm < 1
    wanted = said.space or (options.MPS if part else "")
    if not wanted or not modes or wanted in modes:
        return ""
    if said.space == options.TIME:
        return "space:time, but its GPUs are shared by MPS; leave space out"
    what = f"sm:{said.sm:g}" if part else "space:mps"
    return f"{what}, but none of its GPUs is shared by MPS; leave {what.partition(':')[0]} out"


class Told(NamedTuple):
    """rules: by node. faults: by node, why what its daemon wrote is not believed. silent: the nodes
    whose daemons have written nothing, sorted."""

    rules: dict[str, NodeRules]
    faults: dict[str, str]
    silent: list[str]


def read_all(nodes: Iterable[GpuNode], now: int) -> Told:
    told = Told({}, {}, [])
    for node in sorted(nodes, key=lambda node: node.name):
        try:
            found = node_rules.read(node.comment, now)
        except Unreadable as fault:
            told.faults[node.name] = str(fault)
        else:
            if found is None:
                told.silent.append(node.name)
            else:
                told.rules[node.name] = found
    return told


class KnownRules:
    """told: what the journal has."""

    told = Told({}, {}, [])

    def added(self, view: View) -> View:
        """The view with the rules of its nodes. Logs what has changed of those without."""
        before, self.told = self.told, read_all(view.nodes, view.now)
        for name, fault in self.told.faults.items():
            if before.faults.get(name) != fault:
                log.warning("what %s allows is unknown, by its Comment: %s", name, fault)
        if self.told.silent and self.told.silent != before.silent:
            some = words.first_of(self.told.silent, SHOWN)
            log.info("what these nodes allow is unknown (daemon.tell_placer): %s", some)
        rules: dict[str, Rules] = {n: partial(asked, each) for n, each in self.told.rules.items()}
        return replace(view, rules=rules)

"""What each node allows, by what its daemon has written into the node's Comment.

A node whose daemon has written nothing, or nothing that can be believed, has no rules here: the
placer then takes it that the node allows everything and gives jobs nothing of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from leased.admin import node_rules
from leased.admin.label_check import request_of
from leased.admin.node_rules import NodeRules, Unreadable
from leased.base.errors import Refused
from leased.config import options
from leased.config.options import Resolved
from leased.placer.model import Asked, Rules, View
from leased.slurm.nodes_json import GpuNode

log = logging.getLogger("gpu-lease-placer")

SHOWN = 20  # nodes that a line of the journal names


@lru_cache(maxsize=8192)
def asked(rules: NodeRules, text: str) -> Asked:
    """What a job with these options asks of a GPU of such a node."""
    try:
        said = options.parse(text)
    except Refused as fault:
        return Asked(request_of(Resolved.of(options.Options(), rules.defaults)), fault.sentence())
    given = rules.limits.with_quantum(Resolved.of(said, rules.defaults), said)
    try:
        rules.limits.check(given)
    except Refused as fault:
        return Asked(request_of(given), fault.sentence())
    return Asked(request_of(given))


def read_all(nodes: Iterable[GpuNode], now: int) -> tuple[dict[str, NodeRules], dict[str, str]]:
    """The rules by node; and by node why those that stand there are not believed."""
    rules: dict[str, NodeRules] = {}
    faults: dict[str, str] = {}
    for node in nodes:
        try:
            found = node_rules.read(node.comment, now)
        except Unreadable as fault:
            faults[node.name] = str(fault)
        else:
            if found is not None:
                rules[node.name] = found
    return rules, faults


@dataclass
class KnownRules:
    """faults: by node, why what its daemon wrote is not believed. silent: the nodes whose daemons
    have written nothing. Both as the journal has them."""

    faults: dict[str, str] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def added(self, view: View) -> View:
        """The view with the rules of its nodes. Logs what has changed of those without."""
        found, faults = read_all(view.nodes, view.now)
        rules: dict[str, Rules] = {name: partial(asked, each) for name, each in found.items()}
        self._say(faults, frozenset(n.name for n in view.nodes) - set(rules) - set(faults))
        return replace(view, rules=rules)

    def _say(self, faults: dict[str, str], silent: frozenset[str]) -> None:
        for name, fault in faults.items():
            if self.faults.get(name) != fault:
                log.warning("what %s allows is unknown, by its Comment: %s", name, fault)
        if silent != self.silent and silent:
            some = ", ".join(sorted(silent)[:SHOWN]) + ", ..." * (len(silent) > SHOWN)
            log.info("what these nodes allow is unknown (daemon.tell_placer): %s", some)
        self.faults, self.silent = faults, silent

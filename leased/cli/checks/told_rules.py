"""check: whether gpu-lease-placer knows what nodes allow (daemon.tell_placer).

On a node, what its own Comment says; on the host of slurmctld, those of all nodes whose GPUs jobs
share. Everybody may read them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator

from leased.admin import node_rules
from leased.admin.node_rules import Unreadable
from leased.base.words import first_of
from leased.cli.checks.finding import OK, WARNING, Finding, Site, finding
from leased.placer import alive
from leased.placer.known_rules import read_all
from leased.slurm import node_comment
from leased.slurm.asking import Asking, Silent
from leased.slurm.commands import Slurm
from leased.slurm.nodes_json import GpuNode

REFUSED = "jobs that it forbids are sent there, and refused at their start"
SHOWN = 8  # nodes that a finding names
AGAIN = "see journalctl -u gpu-leased; its restart writes them again, and changes no lease"


def comment_of(site: Site, node: str) -> str:
    """OSError: it is not known."""
    return asyncio.run(node_comment.read(Slurm(site.env).run, node))


def of_node(site: Site) -> Iterator[Finding]:
    if site.node is None or not site.config.tell_placer:
        return
    where = f"the Comment of {site.node}"
    try:
        found = node_rules.read(comment_of(site, site.node), int(time.time()))
    except Unreadable as fault:
        words = f"the rules of this node in {where} are not believed: {fault}; {REFUSED}"
        yield Finding("node-rules", WARNING, words, f"{AGAIN}; do all clocks agree?")
    except OSError as fault:
        words = f"{where} was not read: {fault}"
        yield Finding("node-rules", WARNING, words, "run scontrol ping: does slurmctld answer?")
    else:
        wrong = f"{where} lacks the rules of this node: {REFUSED}" if found is None else ""
        good = f"{where} tells gpu-lease-placer what it allows"
        yield finding("node-rules", wrong, AGAIN, good)


def of_all_nodes(site: Site) -> Iterator[Finding]:
    """Where the placer runs."""
    if not alive.counts(site.config.placer.runtime_dir, int(time.time())):
        return
    slurmctld = Asking(site.env)
    why = slurmctld.why_commands
    asks = f"by Slurm's commands: {why}" if why else "through pyslurm"
    yield Finding("placer-asks", OK, f"gpu-lease-placer asks slurmctld {asks}")
    try:
        nodes = slurmctld.nodes().found
    except Silent as fault:
        words = f"what nodes tell gpu-lease-placer was not looked at: {fault}"
        yield Finding("placer-rules", WARNING, words, "does slurmctld answer scontrol ping?")
    else:
        yield _of_nodes(nodes)


def _of_nodes(nodes: Iterable[GpuNode]) -> Finding:
    told = read_all(nodes, int(time.time()))
    if not told.rules and not told.faults:
        words = "no node tells gpu-lease-placer what it allows: jobs that a node forbids are sent "
        return Finding("placer-rules", OK, words + "there, and refused at their start")
    said = [f"those of {name} are not believed: {fault}" for name, fault in told.faults.items()]
    said = said[:SHOWN] + ["..."] * (len(said) > SHOWN)
    if told.silent:
        said.append(f"{first_of(told.silent, SHOWN)} told none")
    if not said:
        return Finding("placer-rules", OK, "all nodes tell gpu-lease-placer what they allow")
    words = f"gpu-lease-placer does not know the rules of all nodes: {'; '.join(said)}"
    remedy = "set daemon.tell_placer on all nodes, and run gpu-leasectl check on those"
    return Finding("placer-rules", WARNING, words, remedy)

"""The GPUs of the cluster, with the jobs that Slurm says are on them.

Slurm itself chooses the GPU of a job: the first one of the node, in the order of their numbers,
that has enough free shards and the type that the job asks for, if any. So it is known beforehand
which GPU that will be, and a job fits on a node only if it fits on that GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from leased.placement.api import ANY, Device, Request
from leased.placer.model import Asked, Rules, Ticket
from leased.slurm.hostlists import expand
from leased.slurm.nodes_json import GpuNode
from leased.slurm.queue_json import QueuedJob

NAMES = re.compile(r"[A-Za-z0-9_.=-]+")
Place = tuple[str, int]  # a node and a number of a GPU


@dataclass
class Gpu:
    """shards: how many are free. device: what jobs have of it, and its name for people. whole: a
    job has the whole GPU."""

    kind: str
    total: int
    shards: int
    device: Device
    whole: bool = False

    def take(self, shards: int | None, request: Request) -> None:
        """A job has so many of its shards; None: the whole GPU."""
        self.device = self.device.joined(request)
        self.whole = self.whole or shards is None
        self.shards = 0 if shards is None else self.shards - shards

    def give_back(self, shards: int | None, request: Request) -> None:
        """Such a job ends."""
        self.device = self.device.left(request)
        self.whole = self.whole and shards is not None
        self.shards = self.total if shards is None else self.shards + shards


class Offer(NamedTuple):
    """A GPU, what a job would ask of it there, and where it is."""

    device: Device
    request: Request
    place: Place


@dataclass
class Cluster:
    """by_node: each node's GPUs in Slurm's order. cpus, memory (MiB): what is left of each node.
    rules: of the nodes that say theirs. closed: partitions that start no jobs. Jobs that the placer
    has let start count as being on their GPU before they have begun."""

    nodes: dict[str, GpuNode]
    by_node: dict[str, list[Gpu]]
    cpus: dict[str, int]
    memory: dict[str, int]
    rules: Mapping[str, Rules] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        nodes: Iterable[GpuNode],
        rules: Mapping[str, Rules],
        closed: frozenset[str] = frozenset(),
    ) -> Cluster:
        known = {node.name: node for node in nodes}
        gpus = {
            name: [
                Gpu(kind, shards, shards, Device(f"{name} GPU {index}", 0))
                for index, (kind, shards) in enumerate(node.gpus)
            ]
            for name, node in known.items()
        }
        cpus = {name: node.idle_cpus for name, node in known.items()}
        memory = {name: node.free_memory for name, node in known.items()}
        return cls(known, gpus, cpus, memory, rules, closed)

    def only(self, node: str) -> Cluster:
        """A copy of one node, which can change by itself."""
        gpus = [replace(gpu) for gpu in self.by_node[node]]
        cpus, memory = {node: self.cpus[node]}, {node: self.memory[node]}
        nodes = {node: self.nodes[node]}
        return Cluster(nodes, {node: gpus}, cpus, memory, self.rules, self.closed)

    def asked(self, node: str, ticket: Ticket | None, job: QueuedJob) -> Asked:
        """What a job asks of a GPU of the node. ticket: None: it has neither labels nor a share of
        its own."""
        rules, known = self.rules.get(node), self.nodes.get(node)
        asked = Asked(ticket.request if ticket else Request())
        if rules is not None:
            owner = job.owner(known.partitions if known else ())
            asked = rules(ticket.options if ticket else "", owner)
        return asked._replace(request=asked.request.of_user(job.user_id))

    def take(self, node: str, index: int, shards: int | None, request: Request) -> None:
        """A job has this many shards of the GPU; None: the whole GPU. An unknown GPU is ignored:
        its node may have been removed from slurm.conf while the job runs."""
        gpus = self.by_node.get(node, [])
        if 0 <= index < len(gpus):
            gpus[index].take(shards, request)

    def chosen_on(self, job: QueuedJob, node: str) -> int | None:
        """The GPU of the node that Slurm would give to the job; None: there is none for it."""
        for index, gpu in enumerate(self.by_node[node]):
            if job.gpu_type in ("", gpu.kind) and gpu.shards >= job.shards:
                return index
        return None

    def places(self) -> dict[str, Place]:
        """Node and number of each GPU, by the name of its device."""
        return {
            gpu.device.name: (node, index)
            for node, gpus in self.by_node.items()
            for index, gpu in enumerate(gpus)
        }

    def offers(self, job: QueuedJob, ticket: Ticket) -> list[Offer]:
        """The GPUs that the job could get, and those with a label that jobs seek. Those that Slurm
        would not give it now have the reason in `shut`."""
        found = []
        for node, gpus in self.by_node.items():
            asked = self.asked(node, ticket, job)
            refused = self.refusal(job, node) or asked.refusal
            chosen = None if refused else self.chosen_on(job, node)
            for index, gpu in enumerate(gpus):
                mine = job.gpu_type in ("", gpu.kind)
                if (refused or not mine) and not gpu.device.labels:
                    continue
                shut = refused or _shut(job, gpu, index, chosen)
                together = asked.together.get(index, ANY)
                device = replace(gpu.device, shut=shut, together=together)
                found.append(Offer(device, asked.request, (node, index)))
        return found

    def forbidden(self, job: QueuedJob, ticket: Ticket) -> str:
        """Why the rules of nodes forbid the job on each that it could have otherwise, with the
        remedy; "": they do not."""
        may = [node for node, gpus in self.by_node.items() if gpus and not self.refusal(job, node)]
        refusals = [self.asked(node, ticket, job).refusal for node in may]
        return refusals[0] if refusals and all(refusals) else ""

    def refusal(self, job: QueuedJob, node: str) -> str:
        """Why the job cannot be on the node, apart from GPUs and labels; "": it can."""
        excluded = self.exclusion(job, node)
        if excluded:
            return excluded
        if job.cpus > self.cpus[node]:
            return f"the node has {max(0, self.cpus[node])} CPUs left"
        if job.memory > self.memory[node]:
            return f"the node has {max(0, self.memory[node])} MiB of memory left"
        return ""

    def exclusion(self, job: QueuedJob, node: str) -> str:
        """Why the job cannot be on the node, whatever ends there; "": it can."""
        known = self.nodes[node]
        if not known.usable:
            return "the node takes no jobs"
        shared = set(job.partitions) & set(known.partitions)
        if not shared:
            return "the node is in none of the job's partitions"
        if shared <= self.closed:
            return f"the partition {min(shared)} starts no jobs"
        if not _names_allow(job, node) or not features_allow(job.features, known.features):
            return "the job's request excludes the node"
        return ""

    def emptied(self) -> Cluster:
        """The same cluster without jobs, and with all nodes and partitions up."""
        nodes = [
            replace(node, usable=True, idle_cpus=1 << 30, free_memory=1 << 40)
            for node in self.nodes.values()
        ]
        return Cluster.of(nodes, self.rules)


def _shut(job: QueuedJob, gpu: Gpu, index: int, chosen: int | None) -> str:
    if job.gpu_type not in ("", gpu.kind):
        return f"the job asks for a GPU of type {job.gpu_type}"
    if gpu.whole:
        return "a job has the whole GPU"
    if gpu.shards < job.shards:
        free = max(0, gpu.shards)
        return f"{free} of its {gpu.total} shards {'is' if free == 1 else 'are'} free"
    return "" if index == chosen else f"Slurm would give the job GPU {chosen} of this node"


def _names_allow(job: QueuedJob, node: str) -> bool:
    """Whether the job's lists of nodes allow the node. A list that cannot be read allows none."""
    try:
        required = expand(job.required) if job.required else [node]
        return required == [node] and node not in expand(job.excluded)
    except ValueError:
        return False


def features_allow(wanted: str, there: frozenset[str]) -> bool:
    if not wanted:
        return True
    if "|" in wanted:
        return any(name in there for name in wanted.split("|"))
    return all(name in there for name in re.split("[&,]", wanted))


def is_readable(features: str) -> bool:
    """Whether it is a list of names that are all joined by "and", or all by "or"."""
    return any(
        all(NAMES.fullmatch(name) for name in re.split(sign, features)) for sign in ("[&,]", r"\|")
    )

"""check: GPUs and shards of this node in slurm.conf and gres.conf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leased.cli.checks import gres_order
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, unreadable_lines
from leased.slurm import gres_conf
from leased.slurm.gres_conf import Gres

WHOLE_FROM = (23, 11)  # early releases of 23.11 do as those before
MOST_NODES = 64  # that are compared with gres.conf, which is read for each


def findings(site: Site) -> Iterator[Finding]:
    yield from _types(site)
    yield from _node(site)


def of_all_nodes(site: Site) -> Iterator[Finding]:
    """On the host of slurmctld: whether any node has shards, and as many as in gres.conf."""
    yield from _types(site)
    counts = {
        node: gres_conf.gres_counts(gres) for node, gres in site.slurm.of_nodes("gres").items()
    }
    sharing = {node: found for node, found in counts.items() if found.get("shard")}
    if not sharing:
        words = "no node of slurm.conf has shards"
        yield Finding("node-gres", FAULT, words, "write for example Gres=gpu:4,shard:32")
        return
    yield Finding("node-gres", OK, f"{len(sharing)} of {len(counts)} nodes have shards")
    path = (site.slurm.folder or Path()) / "gres.conf"
    if site.slurm.folder is None or not path.is_file():
        return  # each node may have its own
    some = list(sharing)[:MOST_NODES]
    for node in some:
        wanted, said = sharing[node], gres_conf.gres_of(path, node)
        if not wanted.get("gpu") or said.shards != wanted["shard"]:
            words = f"node {node} has {wanted['shard']} shard and {wanted.get('gpu', 0)} gpu in "
            words += f"slurm.conf, {said.shards} shard in {path}"
            yield Finding("gres-count", FAULT, words, "make slurm.conf and gres.conf agree")
            return
    yield Finding("gres-count", OK, f"slurm.conf and {path} agree")
    said = max((gres_conf.gres_of(path, node) for node in some), key=lambda gres: gres.unplaced)
    yield from _whole(site, said, path)


def _types(site: Site) -> Iterator[Finding]:
    types = site.slurm.listed("grestypes")
    missing = [name for name in ("gpu", "shard") if name not in types]
    if missing:
        words = f"GresTypes of slurm.conf lacks {' and '.join(missing)}"
        yield Finding("gres-types", FAULT, words, "write GresTypes=gpu,shard")
    else:
        yield Finding("gres-types", OK, "GresTypes has gpu and shard")


def _node(site: Site) -> Iterator[Finding]:
    if site.slurm.path is None:
        words = "slurm.conf is not on this host, so gres.conf is not checked"
        yield Finding("node", WARNING, words, "run this check on the node")
        return
    node = site.node
    if node is None or node not in site.slurm.nodes:
        words = f"{node or 'this host'} is in no NodeName line of {site.slurm.path}"
        yield Finding("node", WARNING, words, "say which node this is: --node NAME")
        return
    yield Finding("node", OK, f"this is node {node}")
    counts = gres_conf.gres_counts(site.slurm.node(node).get("gres", ""))
    missing = [name for name in ("gpu", "shard") if not counts.get(name)]
    if missing:
        words = f"node {node} has no Gres {' and no '.join(missing)} in slurm.conf"
        yield Finding("node-gres", FAULT, words, "write for example Gres=gpu:4,shard:32")
        return
    yield Finding("node-gres", OK, f"{counts['gpu']} gpu and {counts['shard']} shard")
    path = site.slurm.path.parent / "gres.conf"
    if not path.is_file():
        yield Finding("gres-conf", FAULT, f"there is no {path}", "see slurm-conf/gres.conf")
        return
    said = gres_conf.gres_of(path, node)
    yield from unreadable_lines("gres-conf", said.faults)
    yield from _gres_lines(site, said, counts, path)
    yield from gres_order.findings(site)


def _gres_lines(site: Site, said: Gres, counts: dict[str, int], path: Path) -> Iterator[Finding]:
    example = "see slurm-conf/gres.conf"
    missing = [] if said.gpu_lines or said.autodetect else ["gpu"]
    missing += [] if said.shard_lines else ["shard"]
    if missing:
        words = f"{path} has no line for {' and '.join(missing)} of node {site.node}"
        yield Finding("gres-conf", FAULT, words, example)
        return
    yield Finding("gres-conf", OK, f"{path} has gpu and shard")
    absent = [name for name in said.files if not Path(name).exists()]
    if absent:
        words = f"{path} names {absent[0]}, which is not there"
        yield Finding("gres-files", FAULT, words, "correct File=, or load the driver")
    elif said.files:
        yield Finding("gres-files", OK, f"the device files of {path} are there")
    yield from _counts(site, said, counts, path)
    yield from _whole(site, said, path)


def _whole(site: Site, said: Gres, path: Path) -> Iterator[Finding]:
    """Before 23.11 slurmctld knows which GPUs are in use only if gres.conf has Cores= or Type=."""
    if site.version is None or site.version >= WHOLE_FROM or not said.unplaced or said.autodetect:
        yield Finding("gres-whole", OK, "no job is given a GPU whole while shards of it are used")
        return
    words = f"the lines of gpu in {path} have neither Cores= nor Type=, so this Slurm gives out "
    words += "GPUs whole while shards of them are in use"
    remedy = "write Type=, or Cores= with the node's cores, in each line of gpu"
    yield Finding("gres-whole", FAULT, words, remedy)


def _counts(site: Site, said: Gres, counts: dict[str, int], path: Path) -> Iterator[Finding]:
    gpus, shards = counts["gpu"], counts["shard"]
    wrong = []
    there = len(site.gpus)
    # slurm.conf may have fewer on purpose, if gres.conf says which.
    if there and (gpus > there or (gpus < there and len(said.files) != gpus)):
        wrong.append(f"slurm.conf has {gpus} gpu, NVML shows {there}")
    if said.files and len(said.files) != gpus:
        wrong.append(f"{path} has {len(said.files)} device files, slurm.conf {gpus} gpu")
    if said.shards != shards:
        wrong.append(f"{path} has {said.shards} shard, slurm.conf {shards}")
    if wrong:
        words = "; ".join(wrong)
        yield Finding("gres-count", FAULT, words, "make slurm.conf, gres.conf and the GPUs agree")
    elif shards % gpus:
        words = f"{shards} shards cannot be divided evenly among {gpus} GPUs"
        yield Finding("gres-count", FAULT, words, f"make the number of shards a multiple of {gpus}")
    else:
        words = f"{shards} shards on {gpus} GPUs: at most {shards // gpus} jobs share one"
        yield Finding("gres-count", OK, words)

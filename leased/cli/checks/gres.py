"""check: GPUs and shards of this node, as slurmd makes them of slurm.conf and gres.conf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leased.base.words import count
from leased.cli.checks import gres_order
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, finding, unreadable_lines
from leased.slurm import gres_conf, gres_text, node_gres, slurm_gpus, slurmconf
from leased.slurm.gres_conf import GresConf
from leased.slurm.node_gres import NodeGres

WHOLE_FROM = (23, 11, 5)
MOST_NODES = 64  # that are compared with gres.conf, which is read for each
NO_SHARDS = "write for example Gres=gpu:4,shard:32"
AGREE = "make slurm.conf, gres.conf and the GPUs agree"


def findings(site: Site) -> Iterator[Finding]:
    yield from _types(site)
    yield from _node(site)


def of_all_nodes(site: Site) -> Iterator[Finding]:
    """On the host of slurmctld: whether any node has shards, and as many as in gres.conf."""
    yield from _types(site)
    site.slurm.add_asked_nodes(slurmconf.ask_nodes(site.env))
    nodes = site.slurm.of_nodes("gres")
    sharing = {node: gres for node, gres in nodes.items() if gres_text.counts(gres).get("shard")}
    if not sharing:
        yield Finding("node-gres", FAULT, "no node of slurm.conf has shards", NO_SHARDS)
        return
    yield Finding("node-gres", OK, f"{len(sharing)} of {len(nodes)} nodes have shards")
    path = (site.slurm.folder or Path()) / "gres.conf"
    if site.slurm.folder is None or not path.is_file():
        return  # each node may have its own
    whole: list[str] = []
    for node, gres in list(sharing.items())[:MOST_NODES]:
        found = node_gres.merged(gres_conf.gres_of(path, node), gres)
        lacks = "" if found.unknown else _lacks(found, gres)
        if found.stops or lacks:
            why = found.stops or f"slurmd has {lacks}"
            words = f"node {node} has Gres={gres}, and {path} does not go with it: {why}"
            yield Finding("gres-count", FAULT, words, "make slurm.conf and gres.conf agree")
            return
        if not found.unknown and not found.described:
            whole.append(node)
    yield Finding("gres-count", OK, f"slurm.conf and {path} agree")
    yield _whole(site, f"node {whole[0]}" if whole else "")


def _types(site: Site) -> Iterator[Finding]:
    types = site.slurm.listed("grestypes")
    missing = [name for name in ("gpu", "shard") if name not in types]
    wrong = f"GresTypes of slurm.conf lacks {' and '.join(missing)}" if missing else ""
    remedy, good = "write GresTypes=gpu,shard", "GresTypes has gpu and shard"
    yield finding("gres-types", wrong, remedy, good, FAULT)


def _node(site: Site) -> Iterator[Finding]:
    path, node = site.slurm.path, site.node
    if path is None:
        words = "slurm.conf is not on this host, so gres.conf is not checked"
        yield Finding("node", WARNING, words, "run this check on the node")
    elif node is None:
        words = f"this host is in no NodeName line of {path}, and slurmctld says nothing of it"
        yield Finding("node", WARNING, words, "say which node this is: --node NAME")
    elif node not in site.slurm.nodes:
        words = f"{node} is in no NodeName line of {path}, and slurmctld says nothing of it"
        yield Finding("node", WARNING, words, f"run scontrol show node {node}: is it the name?")
    else:
        yield Finding("node", OK, f"this is node {node}")
        yield from _of_node(site, node, path.parent / "gres.conf")


def _of_node(site: Site, node: str, path: Path) -> Iterator[Finding]:
    gres = site.slurm.node(node).get("gres", "")
    counts = gres_text.counts(gres)
    missing = [name for name in ("gpu", "shard") if not counts.get(name)]
    if missing:
        words = f"node {node} has no Gres {' and no '.join(missing)} in slurm.conf"
        yield Finding("node-gres", FAULT, words, NO_SHARDS)
        return
    yield Finding("node-gres", OK, f"{counts['gpu']} gpu and {counts['shard']} shard")
    conf = gres_conf.gres_of(path, node) if path.is_file() else GresConf()
    yield from unreadable_lines("gres-conf", conf.faults)
    absent = [name for name in conf.files if not Path(name).exists()]
    if absent:
        words = f"{path} names {absent[0]}, which is not there: slurmd does not start"
        yield Finding("gres-files", FAULT, words, "correct File=, or load the driver")
    elif conf.files:
        yield Finding("gres-files", OK, f"the device files of {path} are there")
    dynamic = gres if node in site.slurm.dynamic else None
    found = None if absent else node_gres.ask(node, dynamic, site.env)
    if found is None:
        found = node_gres.merged(conf, gres, slurm_gpus.detected(site.gpus) or None)
    yield from _made_of_it(site, found, gres, path)


def _made_of_it(site: Site, found: NodeGres, gres: str, path: Path) -> Iterator[Finding]:
    """found: what slurmd makes of Gres= and gres.conf."""
    if found.stops:
        what = path if path.is_file() else f"slurm.conf, without {path}"
        words = f"slurmd of node {site.node} stops at {what}: {found.stops}"
        remedy = "see slurm-conf/gres.conf; run slurmd -G when it is corrected"
        yield Finding("gres-conf", FAULT, words, remedy)
        return
    if found.unknown:
        words = f"{path} has AutoDetect=, and neither slurmd nor NVML says what is there"
        yield Finding("gres-conf", WARNING, words, "run slurmd -G as root")
        return
    yield Finding("gres-conf", OK, f"slurmd takes {path} and Gres= of slurm.conf")
    yield _counts(site, found, gres)
    yield _whole(site, "" if found.described else f"node {site.node}")
    yield from gres_order.findings(site, found.gpus)


def _lacks(found: NodeGres, gres: str) -> str:
    """What slurmctld misses when slurmd registers, such as "1 gpu of 2"; "": nothing. What is too
    much it ignores."""
    counts = gres_text.counts(gres)
    has = {"gpu": len(found.gpus), "shard": found.shards}
    return " and ".join(
        f"{number} {name} of {counts.get(name, 0)}"
        for name, number in has.items()
        if number < counts.get(name, 0)
    )


def _counts(site: Site, found: NodeGres, gres: str) -> Finding:
    there, has = len(site.gpus), len(found.gpus)
    if there and has > there:
        words = f"slurm.conf has {has} gpu, NVML shows {there}"
        return Finding("gres-count", FAULT, words, AGREE)
    lacks = _lacks(found, gres)
    if lacks:
        words = f"slurmd has {lacks}, so slurmctld sends no jobs"
        return Finding("gres-count", FAULT, words, AGREE)
    most = max(gpu.shards for gpu in found.gpus)
    words = f"{count(found.shards, 'shard')} on {count(has, 'GPU')}: "
    words += f"at most {count(most, 'job')} can be on one"
    return Finding("gres-count", OK, words)


def _whole(site: Site, where: str) -> Finding:
    """Before 23.11.5 slurmctld knows which GPUs are in use only if they have a type or cores.
    where: a node on which they have neither; "": there is none."""
    if site.version is None or site.version >= WHOLE_FROM or not where:
        words = "no job is given a GPU whole while shards of it are used"
        return Finding("gres-whole", OK, words)
    words = f"the GPUs of {where} have neither a type in slurm.conf nor Cores= in gres.conf, so "
    words += "this Slurm gives out GPUs whole while shards of them are in use"
    remedy = "write the type in both, Gres=gpu:TYPE:COUNT and Type=TYPE, or Cores= in gres.conf"
    return Finding("gres-whole", FAULT, words, remedy)

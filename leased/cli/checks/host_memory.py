"""check: host memory for copies of swapped memory, as the daemon reports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leased.base.words import size
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.processes import procfs


def findings(site: Site, said: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Host memory for copies of swapped memory: the node's, or else each job's own."""
    if said is None or not site.config.swap:
        return
    budget, left = size(said["budget_bytes"]), said["left_bytes"]
    if not said["kept"]:
        words = "gpu-leased-copies does not run: copies of swapped memory are in the jobs' own "
        words += "--mem"
        yield Finding("copies", WARNING, words, "run systemctl start gpu-leased-copies.socket")
    elif left <= 0:
        words = f"all {budget} of host memory for copies of swapped memory are claimed"
        yield Finding("copies", WARNING, words, "raise limits.swap_host, or let fewer jobs share")
    else:
        words = f"{size(left)} of {budget} of host memory for copies of swapped memory are left"
        yield Finding("copies", OK, words)
    if said["kept"] and "ahead_most_bytes" in said:
        yield _ahead(said["ahead_bytes"], said["ahead_most_bytes"])
    yield _room_beside_jobs(site, said["budget_bytes"])


def _ahead(now: int, most: int) -> Finding:
    """Host memory that is prepared before a handoff needs it."""
    if not most:
        words = "no host memory is prepared ahead of handoffs, so the first ones take longer"
        return Finding("copies-ahead", WARNING, words, "raise limits.swap_ahead")
    words = f"{size(now)} of host memory are ready ahead of handoffs, {size(most)} at most"
    return Finding("copies-ahead", OK, words)


def _room_beside_jobs(site: Site, budget: int) -> Finding:
    """Slurm gives jobs RealMemory less MemSpecLimit. Copies need memory besides that."""
    total = procfs.host_memory()[0]
    node = site.slurm.node(site.node)
    fields = [node.get(field, "") for field in ("realmemory", "memspeclimit")]
    mib = [int(text) if text.isascii() and text.isdigit() else 0 for text in fields]
    jobs = (mib[0] - mib[1]) << 20
    if not mib[0] or jobs + budget <= total:
        return Finding("copies-slurm", OK, "Slurm gives jobs no memory that copies may need")
    words = f"Slurm gives jobs {size(jobs)} of this host's {size(total)}, and copies may take "
    words += f"{size(budget)}: together they are too much"
    remedy = f"write MemSpecLimit={budget >> 20} for this node in slurm.conf, or lower "
    remedy += "limits.swap_host"
    return Finding("copies-slurm", WARNING, words, remedy)

"""check: whether Slurm holds jobs that the daemon evicts again and again (26.11 and later)."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, WARNING, Finding, Site

ID = "requeues"
KEY = "MaxPreemptRequeue"  # counts what `scontrol requeue` begins anew too; 0: any number


def findings(site: Site) -> Iterator[Finding]:
    ours, said = site.config.classes.requeues, site.slurm.value(KEY.lower())
    if site.config.classes.unhealthy != "evict" or not said.isdecimal():
        return
    if 0 < int(said) < ours:
        words = f"jobs are evicted up to {ours} times, and {KEY}={said} of slurm.conf holds them "
        words += "before that, until an administrator releases them"
        yield Finding(ID, WARNING, words, f"set classes.requeues to {said} or less")
    else:
        yield Finding(ID, OK, f"{KEY}={said} of slurm.conf holds no job that is evicted")

"""check: slurm.conf."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, Finding, Site, unreadable_lines


def findings(site: Site) -> Iterator[Finding]:
    where = site.slurm.path or "what slurmctld says"
    yield from unreadable_lines("slurm-conf", site.slurm.faults)
    if not site.slurm.faults:
        yield Finding("slurm-conf", OK, f"Slurm is configured by {where}")

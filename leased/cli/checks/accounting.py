"""check: whether sacct can show the usage of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, WARNING, Finding, Site


def findings(site: Site) -> Iterator[Finding]:
    kind = site.slurm.values.get("accountingstoragetype", "accounting_storage/none")
    if kind.endswith("slurmdbd"):
        yield Finding("accounting", OK, "usage goes to slurmdbd")
    else:
        words = f"AccountingStorageType is {kind}: sacct shows no usage of GPUs"
        yield Finding(
            *("accounting", WARNING, words),
            "run slurmdbd, and set AccountingStorageType=accounting_storage/slurmdbd",
        )

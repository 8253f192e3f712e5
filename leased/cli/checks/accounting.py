"""check: whether sacct can show the usage of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, WARNING, Finding, Site


def findings(site: Site) -> Iterator[Finding]:
    kind = site.slurm.value("accountingstoragetype", "accounting_storage/none")
    if kind.endswith("slurmdbd"):
        yield Finding("accounting", OK, "usage goes to slurmdbd")
    else:
        words = f"AccountingStorageType is {kind}: sacct shows no usage of GPUs"
        yield Finding(
            *("accounting", WARNING, words),
            "run slurmdbd, and set AccountingStorageType=accounting_storage/slurmdbd",
        )
    tres = site.slurm.value("accountingstoragetres").lower().replace(" ", "").split(",")
    missing = [name for name in ("gres/gpu", "gres/shard") if name not in tres]
    if missing:
        words = f"AccountingStorageTRES lacks {' and '.join(missing)}: sacct does not show who had"
        words += " them, and TRESBillingWeights cannot charge for them"
        remedy = "add AccountingStorageTRES=gres/gpu,gres/shard"
        yield Finding("accounting-tres", WARNING, words, remedy)
    else:
        yield Finding("accounting-tres", OK, "sacct shows GPUs and shards of jobs")

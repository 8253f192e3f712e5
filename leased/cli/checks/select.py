"""check: whether Slurm's scheduler gives out shards, and memory."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site

SHARES_FROM = (23, 11)  # where a job may have shards of several GPUs
SEVERAL = "MULTIPLE_SHARING_GRES_PJ"


def findings(site: Site) -> Iterator[Finding]:
    kind = site.slurm.value("selecttype", "select/cons_tres")
    if site.slurm.plugins("selecttype", "select", kind) != ["cons_tres"]:
        words = f"SelectType is {kind}, which gives out no shards"
        yield Finding("select-type", FAULT, words, "write SelectType=select/cons_tres")
        return
    said = site.slurm.listed("selecttypeparameters")
    words = "Slurm gives out shards"
    may_have_several = SEVERAL in [word.upper() for word in said]
    if site.version is not None and site.version >= SHARES_FROM and not may_have_several:
        words += f"; a job has those of one GPU (without SelectTypeParameters={SEVERAL})"
    yield Finding("select-type", OK, words)
    # What is written, since what Slurm takes where nothing is differs between releases.
    chosen = [word for word in said if word.upper().startswith("CR_")]
    if chosen and not any(word.upper().endswith("MEMORY") for word in chosen):
        words = f"SelectTypeParameters={chosen[0]} gives each job all memory of its node"
        remedy = f"write {chosen[0]}_Memory, so that jobs leave host memory for what others swap"
        yield Finding("select-memory", WARNING, words, remedy)
    else:
        yield Finding("select-memory", OK, "nothing says that each job has all memory of its node")

"""check: what slurm.conf says of what sharing needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leased.base import elf
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, finding, unreadable_lines

SHARES_FROM = (23, 11)  # where a job may have shards of several GPUs
SEVERAL = "MULTIPLE_SHARING_GRES_PJ"
MOST_REQUEUES = "MaxPreemptRequeue"  # counts what `scontrol requeue` begins anew too; 0: any number
OF_SLURM = "select_cons_tres.so"  # every Slurm that gives out shards has it


def findings(site: Site) -> Iterator[Finding]:
    where = site.slurm.path or "what slurmctld says"
    yield from unreadable_lines("slurm-conf", site.slurm.faults)
    if not site.slurm.faults:
        yield Finding("slurm-conf", OK, f"Slurm is configured by {where}")


def scheduler(site: Site) -> Iterator[Finding]:
    """Whether Slurm's scheduler gives out shards, and memory."""
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
    wrong = remedy = ""
    if chosen and not any(word.upper().endswith("MEMORY") for word in chosen):
        wrong = f"SelectTypeParameters={chosen[0]} gives each job all memory of its node"
        remedy = f"write {chosen[0]}_Memory, so that jobs leave host memory for what others swap"
    good = "nothing says that each job has all memory of its node"
    yield finding("select-memory", wrong, remedy, good)


def requeues(site: Site) -> Iterator[Finding]:
    """Whether Slurm holds jobs that the daemon evicts again and again (26.11 and later)."""
    ours, said = site.config.classes.requeues, site.slurm.value(MOST_REQUEUES.lower())
    if site.config.classes.unhealthy != "evict" or not said.isdecimal():
        return
    if 0 < int(said) < ours:
        words = f"jobs are evicted up to {ours} times, and {MOST_REQUEUES}={said} of slurm.conf "
        words += "holds them before that, until an administrator releases them"
        yield Finding("requeues", WARNING, words, f"set classes.requeues to {said} or less")
    else:
        words = f"{MOST_REQUEUES}={said} of slurm.conf holds no job that is evicted"
        yield Finding("requeues", OK, words)


def accounting(site: Site) -> Iterator[Finding]:
    """Whether sacct can show the usage of GPUs."""
    kind = site.slurm.value("accountingstoragetype", "accounting_storage/none")
    words = f"AccountingStorageType is {kind}: sacct shows no usage of GPUs"
    remedy = "run slurmdbd, and set AccountingStorageType=accounting_storage/slurmdbd"
    wrong = "" if kind.endswith("slurmdbd") else words
    yield finding("accounting", wrong, remedy, "usage goes to slurmdbd")
    tres = site.slurm.value("accountingstoragetres").lower().replace(" ", "").split(",")
    missing = [name for name in ("gres/gpu", "gres/shard") if name not in tres]
    words = f"AccountingStorageTRES lacks {' and '.join(missing)}: sacct does not show who had "
    words += "them, and TRESBillingWeights cannot charge for them"
    remedy = "add AccountingStorageTRES=gres/gpu,gres/shard"
    good = "sacct shows GPUs and shards of jobs"
    yield finding("accounting-tres", words if missing else "", remedy, good)


def plugin_dir(site: Site) -> Iterator[Finding]:
    """Whether the plugins in PluginDir are those of the Slurm that is installed here."""
    said = site.slurm.value("plugindir")
    folders = [folder for folder in map(Path, filter(None, said.split(":"))) if folder.is_dir()]
    if said and not folders:
        words = f"PluginDir is {said}, which is not there: Slurm does not start"
        yield Finding("plugin-dir", FAULT, words, "leave PluginDir out, or correct it")
        return
    for folder in folders:
        file = folder / OF_SLURM
        number = elf.number(file, "plugin_version") if file.is_file() else None
        if number is None or site.version is None:
            continue
        built, installed = (number >> 16 & 255, number >> 8 & 255), site.version[:2]
        if built != installed:
            of, here = (f"{major}.{minor:02}" for major, minor in (built, installed))
            words = f"the plugins in {folder}, a PluginDir, are of Slurm {of}; "
            words += f"installed here is {here}"
            yield Finding("plugin-dir", FAULT, words, "leave PluginDir out of slurm.conf")
            return
    yield Finding("plugin-dir", OK, f"Slurm's plugins are in {said or 'its own folder'}")

"""check: whether a job is kept to the GPUs and to the memory that Slurm gave it."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, WARNING, Finding, Site, unreadable_lines
from leased.slurm import slurmconf


def findings(site: Site) -> Iterator[Finding]:
    tasks = site.slurm.value("taskplugin", "task/none")
    constrains = "cgroup" in site.slurm.plugins("taskplugin", "task")
    if constrains:
        yield Finding("task-plugin", OK, "TaskPlugin has task/cgroup")
    else:
        words = f"TaskPlugin is {tasks}, so cgroup.conf keeps no job to its GPUs and its memory"
        yield Finding("task-plugin", WARNING, words, "write TaskPlugin=task/cgroup,task/affinity")
    if site.slurm.folder is None:
        return
    said, faults = slurmconf.cgroup_conf(site.slurm.folder)
    yield from unreadable_lines("cgroup-conf", faults)
    if said.get("constraindevices", "").lower() in slurmconf.YES:
        yield Finding("cgroup-devices", OK, "cgroup.conf keeps jobs to their GPUs")
    else:
        words = "devices are not constrained: a job can open GPUs that Slurm gave to others"
        remedy = "write ConstrainDevices=yes in cgroup.conf"
        yield Finding("cgroup-devices", WARNING, words, remedy)
    yield _memory(site, said.get("constrainramspace", "").lower() in slurmconf.YES and constrains)


def _memory(site: Site, constrained: bool) -> Finding:
    """Whether jobs leave the memory of MemSpecLimit free: a cgroup must limit them to their own."""
    fields = site.slurm.node(site.node)
    if fields.get("memspeclimit", "0") in ("", "0") or constrained:
        return Finding("cgroup-memory", OK, "jobs cannot use memory that MemSpecLimit keeps free")
    words = f"jobs may use the memory that MemSpecLimit={fields['memspeclimit']} keeps free"
    remedy = "write ConstrainRAMSpace=yes in cgroup.conf, with TaskPlugin=task/cgroup"
    return Finding("cgroup-memory", WARNING, words, remedy)

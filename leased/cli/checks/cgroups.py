"""check: whether a job is kept to the GPUs and to the memory that Slurm gave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, finding, unreadable_lines
from leased.slurm import slurmconf

REGIONS = Path("/sys/fs/cgroup/dmem.capacity")  # of GPUs, where kernel and driver have such


def findings(site: Site) -> Iterator[Finding]:
    tasks = site.slurm.value("taskplugin", "task/none")
    constrains = "cgroup" in site.slurm.plugins("taskplugin", "task")
    words = f"TaskPlugin is {tasks}, so cgroup.conf keeps no job to its GPUs and its memory"
    remedy, good = "write TaskPlugin=task/cgroup,task/affinity", "TaskPlugin has task/cgroup"
    yield finding("task-plugin", "" if constrains else words, remedy, good)
    if site.slurm.folder is None:
        return
    said, faults = slurmconf.cgroup_conf(site.slurm.folder)
    yield from unreadable_lines("cgroup-conf", faults)
    devices = said.get("constraindevices", "").lower() in slurmconf.YES
    words = "devices are not constrained: a job can open GPUs that Slurm gave to others"
    remedy = "write ConstrainDevices=yes in cgroup.conf"
    good = "cgroup.conf keeps jobs to their GPUs"
    yield finding("cgroup-devices", "" if devices else words, remedy, good)
    yield from _device_memory(site, said.get("constraindevicememory", "").lower())
    yield _memory(site, said.get("constrainramspace", "").lower() in slurmconf.YES and constrains)


def _device_memory(site: Site, slurms: str) -> Iterator[Finding]:
    """Whether the kernel keeps jobs to their memory of the GPUs, and to which: ours or Slurm's
    (26.11 and later). slurms: ConstrainDeviceMemory."""
    every = (site.config.device, *site.config.devices.values())
    if slurms in slurmconf.YES and not all(one.mem_per_shard for one in every):
        words = "ConstrainDeviceMemory of cgroup.conf keeps each job to its shards' part of a "
        words += "GPU's memory, and gpu-lease tells it that it has all of it: its allocations fail"
        remedy = "leave ConstrainDeviceMemory out, or set device.mem_per_shard to the same part"
        yield Finding("cgroup-dmem", FAULT, words, remedy)
        return
    if not _has_regions(site):
        words = "this kernel and driver cannot keep jobs to their memory of the GPUs"
        wrong = f"limits.dmem is set: {words}" if site.config.dmem else ""
        remedy = "see docs/admin.md, The kernel's cap; the interposer keeps jobs to it"
        yield finding("cgroup-dmem", wrong, remedy, words)
    elif site.config.dmem:
        yield Finding("cgroup-dmem", OK, "the kernel keeps jobs to their memory of the GPUs too")
    else:
        words = "the kernel could keep jobs to their memory of the GPUs too: limits.dmem"
        yield Finding("cgroup-dmem", OK, words)


def _has_regions(site: Site) -> bool:
    """Whether the kernel counts the memory of this node's GPUs: regions have PCI addresses in their
    names, of which some have no number of the function. A GPU that is not NVIDIA's may have one."""
    names = REGIONS.read_text().lower() if REGIONS.exists() else ""
    addresses = [gpu.pci.rpartition(".")[0] for gpu in site.gpus if gpu.pci]
    return bool(names.strip()) and all(address in names for address in addresses)


def _memory(site: Site, constrained: bool) -> Finding:
    """Whether jobs leave the memory of MemSpecLimit free: a cgroup must limit them to their own."""
    fields = site.slurm.node(site.node)
    if fields.get("memspeclimit", "0") in ("", "0") or constrained:
        return Finding("cgroup-memory", OK, "jobs cannot use memory that MemSpecLimit keeps free")
    words = f"jobs may use the memory that MemSpecLimit={fields['memspeclimit']} keeps free"
    remedy = "write ConstrainRAMSpace=yes in cgroup.conf, with TaskPlugin=task/cgroup"
    return Finding("cgroup-memory", WARNING, words, remedy)

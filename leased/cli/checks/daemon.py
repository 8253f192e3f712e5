"""check: whether the daemon answers, and what it says of the node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from _gpulease import lib

from leased import __version__
from leased.api.answers import Status
from leased.api.client import ask_status
from leased.base.errors import NoAnswer, Refused
from leased.cli import show_gpus, show_jobs
from leased.cli.checks import host_memory
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, finding


def findings(site: Site) -> Iterator[Finding]:
    try:
        site.status = status = ask_status(site.admin_socket)
    except NoAnswer as fault:
        yield Finding("daemon", FAULT, str(fault), fault.hint)
        return
    except Refused as fault:
        yield Finding("daemon", WARNING, f"gpu-leased was not asked: {fault}", fault.hint)
        return
    version = status.get("version")
    yield Finding("daemon", OK, f"gpu-leased {version} answers")
    same = version == __version__ and status.get("wire_version") == lib.GL_VERSION
    words = f"gpu-leased is of release {version}, this gpu-leasectl of {__version__}"
    remedy = "run systemctl restart gpu-leased; leases stay where they are"
    good = "daemon and gpu-leasectl are of one release"
    yield finding("daemon-version", "" if same else words, remedy, good, FAULT)
    wrong, remedy = status.get("store_fault") or "", "see df, and journalctl -u gpu-leased"
    yield finding("store", wrong, remedy, "usage and settings are on the disk", FAULT)
    yield _usage(status)
    yield from _devices(status)
    strays = len(status.get("strays", {}).get("now", ()))
    wrong = f"processes use a leased GPU without a lease: {strays}" if strays else ""
    remedy = "see gpu-leasectl status; [strays] of gpu-leased.toml says what is done about them"
    yield finding("strays", wrong, remedy, "no process uses a leased GPU without a lease")
    yield _channels(status)
    yield _mps(status)
    yield _health(status)
    yield from _cluster(site, status.get("cluster", {}))
    yield from host_memory.findings(site, status.get("copies"))
    drained = [str(d["index"]) for d in status.get("devices", []) if d.get("drain")]
    wrong = f"GPU {', '.join(drained)} is drained: jobs wait there" if drained else ""
    remedy = "run gpu-leasectl resume when the maintenance is over"
    yield finding("drained", wrong, remedy, "no device is drained")


def _usage(status: Status) -> Finding:
    """What sacct and report lack of jobs that have ended."""
    waiting = show_jobs.usage_waiting(status)
    wrong = f"usage is not in Slurm's accounting yet: {waiting}" if waiting else ""
    remedy = "see slurmdbd's log, and chronyc tracking or timedatectl on the hosts of Slurm"
    return finding(
        "usage", wrong, remedy, "the usage of jobs that have ended is in Slurm's accounting"
    )


def _devices(status: Status) -> Iterator[Finding]:
    """What the daemon has found of the devices."""
    faulty = [d for d in status.get("devices", []) if d.get("fault")]
    for device in faulty:
        words = f"GPU {device.get('index')} takes no new jobs: {device['fault']}"
        remedy = "see nvidia-smi and dmesg; reset the GPU, or restart the node"
        yield Finding("devices", FAULT, words, remedy)
    if not faulty:
        yield Finding("devices", OK, "the daemon finds no fault of a device")
    silent = status.get("nvml_fault")
    wrong = f"NVML does not answer the daemon: {silent}" if silent else ""
    yield finding("nvml", wrong, "see nvidia-smi and dmesg", "NVML answers the daemon", FAULT)


def _health(status: Status) -> Finding:
    """GPUs that take no offline jobs, or would not if the site wanted that."""
    wrong, remedy = "; ".join(show_jobs.not_well(status)), "see docs/classes.md, Health"
    return finding("offline-jobs", wrong, remedy, "no GPU is found to be unfit for offline jobs")


def _channels(status: Status) -> Finding:
    """Where the GPU's time slices cannot be set, jobs have those of the driver."""
    said = show_jobs.uncontrolled(status)
    wrong = f"the time slices of some jobs cannot be set; {'; '.join(said)}" if said else ""
    good = "no job says that its time slices cannot be set"
    return finding("time-slices", wrong, "see docs/daemon.md, Time slices", good)


def _mps(status: Status) -> Finding:
    """Whether MPS runs where it is to run, and what its jobs have lost."""
    troubles = show_gpus.mps_troubles(status)
    shared = [str(d["index"]) for d in status.get("devices", []) if d.get("mps")]
    if troubles:
        words = f"MPS needs attention: {'; '.join(troubles)}"
        return Finding("mps", WARNING, words, "see docs/mps.md, When something fails")
    if not shared:
        return Finding("mps", OK, "no GPU is shared by MPS")
    return Finding("mps", OK, f"MPS runs on GPU {', '.join(shared)}; {show_gpus.CHANNELS}")


def _cluster(site: Site, said: Mapping[str, Any]) -> Iterator[Finding]:
    """The daemon serves one Slurm cluster, since jobs of two clusters have the same numbers."""
    ours, others = said.get("name"), ", ".join(said.get("refused", {}))
    named = site.slurm.value("clustername").lower()
    remedy = "let the jobs of one cluster share GPUs of a node; see daemon.slurm_conf"
    if others:
        words = f"jobs of {others} come here and are refused: gpu-leased serves {ours}"
        yield Finding("cluster", FAULT, words, remedy)
    elif ours and named and ours != named:
        words = f"gpu-leased serves the Slurm cluster {ours}, but the ClusterName of "
        words += f"{site.slurm.path} is {named}"
        yield Finding("cluster", FAULT, words, remedy)
    elif ours:
        yield Finding("cluster", OK, f"gpu-leased serves the jobs of the Slurm cluster {ours}")
    else:
        words = "gpu-leased does not know yet which Slurm cluster it serves"
        remedy = "run scontrol ping to see whether slurmctld answers"
        yield Finding("cluster", WARNING, words, remedy)

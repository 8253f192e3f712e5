"""check: whether the daemon answers, and what it says of the node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from _gpulease import lib

from leased import __version__
from leased.api.answers import Status
from leased.api.client import ask_status
from leased.base.errors import NoAnswer, Refused
from leased.cli import show_channels, show_classes, show_mps, show_usage
from leased.cli.checks import host_memory
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site


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
    if version != __version__ or status.get("wire_version") != lib.GL_VERSION:
        yield Finding(
            "daemon-version",
            FAULT,
            f"gpu-leased is of release {version}, this gpu-leasectl of {__version__}",
            "run systemctl restart gpu-leased; leases stay where they are",
        )
    else:
        yield Finding("daemon-version", OK, "daemon and gpu-leasectl are of one release")
    store_fault = status.get("store_fault")
    if store_fault:
        yield Finding("store", FAULT, store_fault, "see df, and journalctl -u gpu-leased")
    else:
        yield Finding("store", OK, "usage and settings are on the disk")
    yield _usage(status)
    yield from _devices(status)
    if status.get("strays", {}).get("now"):
        words = f"processes use a leased GPU without a lease: {len(status['strays']['now'])}"
        remedy = "see gpu-leasectl status; [strays] of gpu-leased.toml says what is done about them"
        yield Finding("strays", WARNING, words, remedy)
    else:
        yield Finding("strays", OK, "no process uses a leased GPU without a lease")
    yield _channels(status)
    yield _mps(status)
    yield _health(status)
    yield from _cluster(site, status.get("cluster", {}))
    yield from host_memory.findings(site, status.get("copies"))
    drained = [str(d["index"]) for d in status.get("devices", []) if d.get("drain")]
    if drained:
        yield Finding(
            *("drained", WARNING, f"GPU {', '.join(drained)} is drained: jobs wait there"),
            "run gpu-leasectl resume when the maintenance is over",
        )
    else:
        yield Finding("drained", OK, "no device is drained")


def _usage(status: Status) -> Finding:
    """What sacct and report lack of jobs that have ended."""
    waiting = show_usage.waiting(status)
    if not waiting:
        return Finding("usage", OK, "the usage of jobs that have ended is in Slurm's accounting")
    remedy = "see slurmdbd's log, and chronyc tracking or timedatectl on the hosts of Slurm"
    return Finding("usage", WARNING, f"usage is not in Slurm's accounting yet: {waiting}", remedy)


def _devices(status: Status) -> Iterator[Finding]:
    """What the daemon has found of the devices."""
    faulty = [d for d in status.get("devices", []) if d.get("fault")]
    for device in faulty:
        words = f"GPU {device.get('index')} takes no new jobs: {device['fault']}"
        yield Finding(
            "devices", FAULT, words, "see nvidia-smi and dmesg; reset the GPU, or restart the node"
        )
    if not faulty:
        yield Finding("devices", OK, "the daemon finds no fault of a device")
    if status.get("nvml_fault"):
        words = f"NVML does not answer the daemon: {status['nvml_fault']}"
        yield Finding("nvml", FAULT, words, "see nvidia-smi and dmesg")
    else:
        yield Finding("nvml", OK, "NVML answers the daemon")


def _health(status: Status) -> Finding:
    """GPUs that take no offline jobs, or would not if the site wanted that."""
    said = show_classes.not_well(status)
    if not said:
        return Finding("offline-jobs", OK, "no GPU is found to be unfit for offline jobs")
    return Finding("offline-jobs", WARNING, "; ".join(said), "see docs/classes.md, Health")


def _channels(status: Status) -> Finding:
    """Where the GPU's time slices cannot be set, jobs have those of the driver."""
    said = show_channels.uncontrolled(status)
    if not said:
        return Finding("time-slices", OK, "no job says that its time slices cannot be set")
    words = f"the time slices of some jobs cannot be set; {'; '.join(said)}"
    return Finding("time-slices", WARNING, words, "see docs/daemon.md, Time slices")


def _mps(status: Status) -> Finding:
    """Whether MPS runs where it is to run, and what its jobs have lost."""
    troubles = show_mps.troubles(status)
    shared = [str(d["index"]) for d in status.get("devices", []) if d.get("mps")]
    if troubles:
        words = f"MPS needs attention: {'; '.join(troubles)}"
        return Finding("mps", WARNING, words, "see docs/mps.md, When something fails")
    if not shared:
        return Finding("mps", OK, "no GPU is shared by MPS")
    return Finding("mps", OK, f"MPS runs on GPU {', '.join(shared)}; {show_mps.CHANNELS}")


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
        yield Finding(
            "cluster", WARNING, words, "run scontrol ping to see whether slurmctld answers"
        )

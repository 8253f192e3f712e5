"""check: the driver, the daemon with its sockets, the interposer."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased import __version__
from leased.api.answers import Status
from leased.api.client import ask_status
from leased.base import text_file
from leased.base.errors import NoAnswer, Refused
from leased.base.words import size
from leased.cli.check import FAULT, OK, WARNING, Finding, Site, as_list
from leased.config import trusted_files
from leased.gpus import nvml_answers
from leased.gpus.nvml import Nvml, Silent
from leased.gpus.nvml_answers import Described
from leased.processes import procfs

NOBODY = 65534
START_S = 10.0
MOST_BYTES = 64 << 20  # of a library
# Stands in libgpulease.so (shim/base/version.c).
INTERPOSER = re.compile(rb"gpu-lease interposer ([!-~]+) wire ([0-9]{1,9})\0")


def findings(site: Site) -> list[Finding]:
    found = [*as_list(_trusted(site)), *as_list(_driver(site)), *as_list(_daemon(site))]
    return [*found, *as_list(_tenant_socket(site)), *as_list(_interposer(site))]


def _trusted(site: Site) -> Iterator[Finding]:
    """Who may change what root's daemon believes."""
    good = True
    for path, what in trusted_files.named(site.path, site.config):
        try:
            trusted_files.check(path, what)
        except Refused as fault:
            good = False
            yield Finding("trusted-files", FAULT, str(fault), fault.hint)
    if good:
        yield Finding("trusted-files", OK, "only root may change what the daemon relies on")


# -- the driver ----------------------------------------------------------------


def describe() -> dict[str, Any]:
    """What NVML says, asked as the daemon asks it. Silent: nothing."""

    async def ask() -> dict[str, Any]:
        nvml = Nvml()
        try:
            return await nvml.describe()
        finally:
            nvml.close()

    return asyncio.run(ask())


def _driver(site: Site) -> Iterator[Finding]:
    try:
        said = describe()
    except Silent as fault:
        remedy = "load the NVIDIA driver; nvidia-smi must work"
        yield Finding("driver", FAULT, str(fault), remedy)
        return
    shown, unusable = nvml_answers.each_described(said)
    site.gpus = shown
    yield Finding("driver", OK, f"NVIDIA driver {nvml_answers.printable(str(said.get('driver')))}")
    for number, why in unusable.items():
        words = f"number {number} of NVML cannot be used: {why}"
        yield Finding("gpus", FAULT, words, "see nvidia-smi and dmesg; reset it")
    if shown and not unusable:
        names = {gpu.name for gpu in shown}
        yield Finding("gpus", OK, f"{len(shown)} GPUs: {', '.join(sorted(names))}")
    elif not unusable:
        yield Finding("gpus", FAULT, "NVML shows no GPU", "see nvidia-smi and dmesg")
    yield from _modes(shown)


def _modes(shown: list[Described]) -> Iterator[Finding]:
    """Modes of a GPU in which it cannot be shared."""
    for gpu in shown:
        if gpu.mode:
            words, _, remedy = gpu.mode.partition("; ")
            yield Finding("gpu-modes", FAULT, f"GPU {gpu.number} of NVML: {words}", remedy)
    if shown and not any(gpu.mode for gpu in shown):
        yield Finding("gpu-modes", OK, "no GPU is in a mode that keeps jobs from sharing it")


# -- the daemon ----------------------------------------------------------------


def _daemon(site: Site) -> Iterator[Finding]:
    try:
        site.status = status = ask_status(site.admin_socket)
    except NoAnswer as fault:
        yield Finding("daemon", FAULT, str(fault), fault.hint)
        return
    except Refused as fault:
        yield Finding("daemon", WARNING, f"not asked: {fault}", fault.hint)
        return
    version = status.get("version")
    yield Finding("daemon", OK, f"gpu-leased {version} answers")
    if version != __version__ or status.get("wire_version") != lib.GL_VERSION:
        yield Finding(
            *("daemon-version", FAULT, f"gpu-leased is {version}, this is {__version__}"),
            "run systemctl restart gpu-leased; leases stay where they are",
        )
    else:
        yield Finding("daemon-version", OK, "daemon and gpu-leasectl are of one release")
    store_fault = status.get("store_fault")
    if store_fault:
        yield Finding("store", FAULT, store_fault, "see df and the daemon's log")
    else:
        yield Finding("store", OK, "usage and settings are on the disk")
    yield from _devices(status)
    if status.get("strays", {}).get("now"):
        words = f"{len(status['strays']['now'])} processes use a leased GPU without a lease"
        yield Finding("strays", WARNING, words, "see gpu-leasectl status, and [strays]")
    else:
        yield Finding("strays", OK, "no process uses a leased GPU without a lease")
    yield from _cluster(site, status.get("cluster", {}))
    yield from _copies(site, status.get("copies"))
    drained = [str(d["index"]) for d in status.get("devices", []) if d.get("drain")]
    if drained:
        yield Finding(
            *("drained", WARNING, f"GPU {', '.join(drained)} is drained: jobs wait there"),
            "run gpu-leasectl resume when the maintenance is over",
        )
    else:
        yield Finding("drained", OK, "no device is drained")


def _devices(status: Status) -> Iterator[Finding]:
    """What the daemon has found of the devices."""
    faulty = [d for d in status.get("devices", []) if d.get("fault")]
    for device in faulty:
        words = f"GPU {device.get('index')} takes no new jobs: {device['fault']}"
        yield Finding("devices", FAULT, words, "see nvidia-smi and dmesg; reset it, or the node")
    if not faulty:
        yield Finding("devices", OK, "the daemon finds no device faulty")
    if status.get("nvml_fault"):
        words = f"NVML does not answer the daemon: {status['nvml_fault']}"
        yield Finding("nvml", FAULT, words, "see nvidia-smi and dmesg")
    else:
        yield Finding("nvml", OK, "NVML answers the daemon")


def _copies(site: Site, said: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Host memory for what jobs swap: the node's, or else each job's own."""
    if said is None or not site.config.swap:
        return
    budget, left = size(said["budget_bytes"]), said["left_bytes"]
    if not said["kept"]:
        words = "gpu-leased-copies does not run: what jobs swap takes of their own --mem"
        yield Finding("copies", WARNING, words, "run systemctl start gpu-leased-copies.socket")
    elif left <= 0:
        words = f"all of the {budget} of host memory for swapped GPU memory is claimed"
        yield Finding("copies", WARNING, words, "raise limits.swap_host, or let fewer jobs share")
    else:
        words = f"{size(left)} of {budget} of host memory for swapped GPU memory are left"
        yield Finding("copies", OK, words)
    if "ahead_most_bytes" in said:
        yield _ahead(said["ahead_bytes"], said["ahead_most_bytes"])
    yield _room_beside_jobs(site, said["budget_bytes"])


def _ahead(now: int, most: int) -> Finding:
    """Host memory that is made before a handoff needs it."""
    if not most:
        words = "no host memory is made ahead of handoffs: the first ones take longer"
        return Finding("copies-ahead", WARNING, words, "raise limits.swap_ahead")
    words = f"{size(now)} of host memory are ready ahead of handoffs, {size(most)} at most"
    return Finding("copies-ahead", OK, words)


def _room_beside_jobs(site: Site, budget: int) -> Finding:
    """Slurm gives jobs RealMemory less MemSpecLimit: copies need what is beside that."""
    total = procfs.host_memory()[0]
    name = site.slurm.node_of(socket.gethostname())
    node = site.slurm.nodes.get(name, {}) if name else {}
    fields = [node.get(field, "") for field in ("realmemory", "memspeclimit")]
    mib = [int(text) if text.isascii() and text.isdigit() else 0 for text in fields]
    jobs = (mib[0] - mib[1]) << 20
    if not mib[0] or jobs + budget <= total:
        return Finding("copies-slurm", OK, "Slurm gives jobs no memory that copies may need")
    words = f"Slurm gives jobs {size(jobs)} and copies may take {size(budget)} of {size(total)}"
    remedy = f"MemSpecLimit={budget >> 20} for this node in slurm.conf, or a lower limits.swap_host"
    return Finding("copies-slurm", WARNING, words, remedy)


def _cluster(site: Site, said: Mapping[str, Any]) -> Iterator[Finding]:
    """Jobs of two Slurm clusters have the same numbers: the daemon serves one."""
    ours, others = said.get("name"), ", ".join(said.get("refused", {}))
    named = site.slurm.values.get("clustername", "").lower()
    remedy = "let the jobs of one cluster share GPUs of a node; see daemon.slurm_conf"
    if others:
        words = f"jobs of {others} come here and are refused: gpu-leased serves {ours}"
        yield Finding("cluster", FAULT, words, remedy)
    elif ours and named and ours != named:
        words = f"gpu-leased serves the Slurm cluster {ours}, {site.slurm.path} is of {named}"
        yield Finding("cluster", FAULT, words, remedy)
    elif ours:
        yield Finding("cluster", OK, f"gpu-leased serves the jobs of the Slurm cluster {ours}")
    else:
        words = "gpu-leased does not know yet which Slurm cluster it serves"
        yield Finding("cluster", WARNING, words, "see whether scontrol ping finds slurmctld")


def _closed_to_others(path: Path) -> Path | None:
    """The first folder on the way to a file that others may not enter."""
    return next(
        (p for p in reversed(path.absolute().parents) if not p.stat().st_mode & stat.S_IXOTH), None
    )


def _tenant_socket(site: Site) -> Iterator[Finding]:
    path = site.config.tenant_socket
    remedy = "restart gpu-leased.socket, or gpu-leased where there are no socket units"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        yield Finding("tenant-socket", FAULT, f"there is no {path}", remedy)
        return
    folder = _closed_to_others(path)
    if not stat.S_ISSOCK(mode):
        yield Finding("tenant-socket", FAULT, f"{path} is no socket", remedy)
    elif mode & 0o666 != 0o666:
        words = f"{path} has mode {stat.S_IMODE(mode):04o}: jobs of users cannot connect"
        yield Finding("tenant-socket", FAULT, words, f"run chmod 0666 {path}; see SocketMode")
    elif folder is not None:
        words = f"users may not enter {folder}, so their jobs cannot connect to {path}"
        yield Finding("tenant-socket", FAULT, words, f"run chmod o+x {folder}")
    else:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(START_S)
            try:
                sock.connect(str(path))
            except OSError as fault:
                words = f"nobody listens at {path} ({fault.strerror or fault})"
                yield Finding("tenant-socket", FAULT, words, remedy)
            else:
                yield Finding("tenant-socket", OK, f"jobs can connect to {path}")


# -- the interposer ------------------------------------------------------------


def _interposer(site: Site) -> Iterator[Finding]:
    path = Path(site.config.preload)
    remedy = "install gpu-lease on this node, or set daemon.preload in the configuration"
    if not path.is_file():
        yield Finding("interposer", FAULT, f"there is no interposer at {path}", remedy)
        return
    folder = _closed_to_others(path)
    if folder is not None or not path.stat().st_mode & stat.S_IROTH:
        at = folder or path
        words = f"users may not read {at}, so their jobs run without a lease"
        yield Finding("interposer", FAULT, words, f"run chmod o+{'x' if folder else 'r'} {at}")
        return
    said = _load(path)
    if said:
        words = f"{path} cannot be loaded into a process: {said}"
        yield Finding("interposer", FAULT, words, "install what is missing, or build it here")
    else:
        yield Finding("interposer", OK, f"{path} can be loaded by everybody")
    yield _interposer_version(path)


def _load(path: Path) -> str:
    """What the dynamic linker says against loading it into a program; "": nothing."""
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        done = subprocess.run(
            ["/bin/true"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=START_S,
            cwd="/",
            env={"LD_PRELOAD": str(path), "LD_BIND_NOW": "1"},
            **identity,
        )
    except subprocess.TimeoutExpired:
        return f"a program with it takes longer than {START_S:g} s"
    said = done.stderr.strip().splitlines()
    return said[0] if said else f"exit status {done.returncode}" if done.returncode else ""


def _interposer_version(path: Path) -> Finding:
    name = "interposer-version"
    found = INTERPOSER.search(text_file.read(path, MOST_BYTES))
    if not found:
        return Finding(name, WARNING, f"{path} does not say its version", "install gpu-lease again")
    release, wire = found[1].decode(errors="replace"), int(found[2])
    if wire != lib.GL_VERSION:
        words = (
            f"the interposer speaks version {wire} of the protocol, this release {lib.GL_VERSION}"
        )
        return Finding(name, FAULT, words, "install the same release of both")
    if release != __version__:
        words = f"the interposer is of release {release}, this is {__version__}"
        return Finding(name, WARNING, words, "install the same release of both")
    return Finding(name, OK, "the interposer is of this release")

"""check: whether the interposer, and the binding of libslurm, can be loaded."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased import __version__
from leased.base import children, text_file
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, closed_to_others, finding

NOBODY = 65534
START_S = 10.0
IMPORT_S = 30
# As Slurm's own plugins expect: symbols of libslurm are global.
IMPORT = "import os; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import _gpulease_slurmdb"
MOST_BYTES = 64 << 20  # of a library
# Stands in libgpulease.so (shim/base/version.c).
INTERPOSER = re.compile(rb"gpu-lease interposer ([!-~]+) wire ([0-9]{1,9})\0")


def findings(site: Site) -> Iterator[Finding]:
    path = Path(site.config.preload)
    remedy = "install gpu-lease on this node, or set daemon.preload in the configuration"
    if not path.is_file():
        yield Finding("interposer", FAULT, f"there is no interposer at {path}", remedy)
        return
    folder = closed_to_others(path)
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
        words = f"the interposer {path} does not say its release"
        return Finding(name, WARNING, words, "install gpu-lease again")
    release, wire = found[1].decode(errors="replace"), int(found[2])
    if wire != lib.GL_VERSION:
        words = f"the interposer speaks version {wire} of the protocol with gpu-leased, this "
        words += f"release {lib.GL_VERSION}"
        return Finding(name, FAULT, words, "install the same release of both")
    if release != __version__:
        words = f"the interposer is of release {release}, this gpu-leasectl of {__version__}"
        return Finding(name, WARNING, words, "install the same release of both")
    return Finding(name, OK, "the interposer is of this release")


def of_slurm(_: Site) -> Iterator[Finding]:
    """libslurm may end the process that loads it, so it is tried in another one."""
    done = children.run_and_wait(*children.python(IMPORT), patience_s=IMPORT_S)
    said = done.fault
    if done.status and not said:
        said = (done.err.strip().splitlines() or [f"exit status {done.status}"])[-1]
    wrong = f"usage cannot be written for sacct: {said}" if said else ""
    remedy = "install gpu-lease's build for this Slurm (it needs libslurm)"
    yield finding("libslurm", wrong, remedy, "the binding of libslurm can be loaded")

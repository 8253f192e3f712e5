"""What a machine may lack, without which a test has nothing to show: it is skipped, and says what.

A plain chroot has no mounts of its own for a process, as its root is no mount point, and no user
namespaces, which the kernel refuses in one.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")
FREEZER = CGROUPS / "freezer"  # what proctrack/cgroup of version 1 needs


def no_own_mounts() -> str:
    """Why no process may have mounts of its own; "": it may."""
    why = _refused("--mount")
    return why and f"no process may have mounts of its own here, as in a plain chroot: {why}"


def own_mounts_required() -> None:
    """Skip the test where no process may have mounts of its own."""
    if why := no_own_mounts():
        pytest.skip(why)


def user_namespaces_required() -> None:
    """Skip the test where there are no user namespaces."""
    if why := _refused("--user", "--map-root-user"):
        pytest.skip(f"there are no user namespaces here, as in a plain chroot: {why}")


def has_controllers(*names: str) -> bool:
    """Whether we may use these of cgroups of version 1. Where none are mounted slurmd makes plain
    folders in their place, so the folder alone says nothing."""
    return all(os.access(CGROUPS / name / "tasks", os.W_OK) for name in names)


def freezer_required() -> None:
    """Skip the test where there is no freezer, or we may not use it."""
    if not has_controllers(FREEZER.name):
        pytest.skip(f"proctrack/cgroup needs {FREEZER}")


def open_checkout_required() -> None:
    """Skip the test where nobody but root may use the checkout."""
    if subprocess.run(["test", "-r", str(ROOT / "leased")], check=False, user="nobody").returncode:
        pytest.skip(f"other users may not enter {ROOT}: clone to a directory that all may read")


@functools.cache
def _refused(*namespaces: str) -> str:
    """Why they cannot be had; "": they can."""
    words = ["unshare", *namespaces, "true"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return " ".join(done.stderr.split()) if done.returncode else ""

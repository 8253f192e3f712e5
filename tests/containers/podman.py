"""podman with a site's configuration of our own, in a mount namespace: nothing of the machine's is
used or changed, but for its programs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm.leased import Leased
from tests.support import machine

SHIPPED = ROOT / "packaging" / "containers"
USER = "gpul-podman"
UID = 54321
HOOKS = "share/gpu-lease/containers/oci-hooks.d"
# Below the limits of this process, which a container's runtime may not raise; no registry is asked.
LIMITS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
"""
# As on a node with cgroups of version 2 alone; and the site's files in the place of the machine's.
PREPARE = """
mount --make-rshared /
umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 9
for name in containers passwd group subuid subgid; do
	mount --bind {site}/$name /etc/$name || exit 9
done
exec "$@"
"""


def shipped(name: str, placeholder: str, place: Path) -> str:
    """A file as it is shipped, with a place of our own for what meson would put into it."""
    text = (SHIPPED / name).read_text()
    assert placeholder in text
    return text.replace(placeholder, str(place))


class Podman:
    """A node on which the shipped files are enabled. place: for all of its files, a short path."""

    def __init__(self, place: Path, leased: Leased, enabled: bool = True):
        self.place = place
        self.site = place / "etc"
        for folder in ("etc/containers/containers.conf.d", HOOKS, "bin", "home", "runtime"):
            (place / folder).mkdir(parents=True)
        for folder in ("home", "runtime"):
            shutil.chown(place / folder, UID)
            (place / folder).chmod(0o700)
        self._users()
        self._configure(leased, enabled)

    def _users(self) -> None:
        line = f"{USER}:x:{UID}:{UID}::{self.place}/home:/bin/sh\n"
        (self.site / "passwd").write_text(Path("/etc/passwd").read_text() + line)
        group = f"{USER}:x:{UID}:\n"
        (self.site / "group").write_text(Path("/etc/group").read_text() + group)
        for name in ("subuid", "subgid"):
            (self.site / name).write_text(f"{USER}:1000000:65536\n")

    def _configure(self, leased: Leased, enabled: bool) -> None:
        containers = self.site / "containers"
        (containers / "policy.json").write_text('{"default": [{"type": "reject"}]}')
        (containers / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\nrunroot = "{self.place}/run"\n'
            f'graphroot = "{self.place}/graph"\n'
        )
        parts = containers / "containers.conf.d"
        (parts / "limits.conf").write_text(LIMITS)
        ctl = self.place / "bin" / "gpu-leasectl"
        ctl.write_text(
            f"#!/bin/sh\ncd {ROOT} && PYTHONPATH={ROOT}:{ROOT}/build/meson/leased exec "
            f'{sys.executable} -m leased.cli.ctl --config {leased.config} "$@"\n'
        )
        ctl.chmod(0o755)
        hook = shipped("oci-hooks.d/gpu-lease.json.in", "@BINDIR@", ctl.parent)
        (self.place / HOOKS / "gpu-lease.json").write_text(hook)
        if enabled:
            text = shipped("podman/gpu-lease.conf.in", "@DATADIR@", self.place / "share")
            (parts / "gpu-lease.conf").write_text(text)

    def own(self, root: Path, rootless: bool) -> Path:
        """A copy of a root file system that belongs to who runs podman."""
        copy = Path(tempfile.mkdtemp(dir=self.place)) / "root"
        shutil.copytree(root, copy)
        if rootless:
            subprocess.run(["chown", "-R", f"{UID}:{UID}", copy.parent], check=True)
        return copy

    def command(self, *arguments: str, rootless: bool) -> list[str]:
        """What runs podman as a user, or as root."""
        prepare = PREPARE.format(site=self.site)
        namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, "sh"]
        bare = ["env", "-u", "XDG_RUNTIME_DIR", f"HOME={self.place}/home"]
        if rootless:
            ids = (f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
            bare = ["setpriv", *ids, "env", f"HOME={self.place}/home"]
            bare += [f"XDG_RUNTIME_DIR={self.place}/runtime"]
        return [*namespace, *bare, "podman", *arguments]


def required() -> None:
    """Skip the test where there is no podman, or nobody but root may use the checkout."""
    if shutil.which("podman") is None:
        pytest.skip("there is no podman here; `make test-containers` installs it")
    machine.open_checkout_required()

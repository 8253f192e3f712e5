"""Boot one machine of the cluster from a Debian tree, in layers that vanish with it.

`python -m tests.cluster.boot NAME ADDRESS TREE DIR`: process 1 of PID and mount namespaces of its
own, in the network namespace of the cluster's bridge. The root is an overlay as that of
tests/systemd/boot.py, of TREE instead of this machine; DIR is where it is mounted. A machine that
reboots is booted again, with what was written to its disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from tests.cluster.network import BRIDGE
from tests.systemd import boot

REBOOTS = 133  # exit status of systemd-nspawn --keep-unit
ADDRESSES = {"node1": "10.77.0.1", "node2": "10.77.0.2"}


def make_root(work: Path, tree: Path) -> Path:
    """The machine's root directory."""
    boot.mount("tmpfs", work, f"size={boot.SIZE},mode=755")
    root = work / "root"
    boot.overlay(tree, work / "system", root)
    return root


def give_identity(root: Path, name: str, address: str) -> None:
    """What a machine does not share with others of the same tree."""
    hosts = "".join(f"{where} {host}\n" for host, where in ADDRESSES.items())
    files = {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/systemd/network/10-host0.network": (
            f"[Match]\nName=host0\n\n[Network]\nAddress={address}/24\n"
        ),
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def boot_once(root: Path, name: str, cgroups: list[Path]) -> int:
    """Until it is off; REBOOTS: it is to be booted again."""
    nspawn = subprocess.Popen(
        [
            *("sh", "-c", boot.ENTER, "sh", *map(str, cgroups), "--"),
            *(*boot.NSPAWN, f"--directory={root}", f"--machine={name}"),
            f"--network-bridge={BRIDGE}",
        ],
        env={"PATH": os.environ["PATH"]} | boot.NSPAWN_ENV,
    )
    while True:  # process 1 of a namespace inherits what is orphaned in it
        pid, status = os.wait()
        if pid == nspawn.pid:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    boot.check_alone()
    # Process 1 of a namespace hears no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    name, address, tree, directory = sys.argv[1:]
    work = Path(directory)
    # What nspawn leaves in /run stays in this namespace.
    subprocess.run(["mount", "-t", "tmpfs", "gpu-lease", "/run"], check=True)
    root = make_root(work, Path(tree))
    cgroups = boot.make_cgroups(f"gpu-lease-{work.name}")
    try:
        give_identity(root, name, address)
        while (ended := boot_once(root, name, cgroups)) == REBOOTS:
            pass
        return ended
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        boot.end_all()
        boot.remove_cgroups(cgroups)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (OSError, subprocess.CalledProcessError) as fault:
        raise SystemExit(f"cannot boot a machine here: {fault}") from None

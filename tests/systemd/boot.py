"""Boot this machine's own system a second time, in layers that vanish with it.

`python -m tests.systemd.boot DIR`: process 1 of PID and mount namespaces of its own, as
container.py starts it. The container's root is an overlay: below it this machine's root and
the checkout, above it a tmpfs mounted at DIR, so nothing that is done inside reaches the
machine, and every mount ends with the namespace. `--probe` only tries what that needs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZE = "4g"  # the most that may be written inside, all of it in memory

NSPAWN = [
    *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe"),
    *("--link-journal=no", "--resolv-conf=off", "--timezone=off"),
    # With it systemd enforces DevicePolicy= inside as it does on a node.
    "--system-call-filter=bpf",
]
NSPAWN_ENV = {
    "SYSTEMD_NSPAWN_LOCK": "0",
    "SYSTEMD_NSPAWN_TMPFS_TMP": "0",  # the checkout may be in /tmp
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
}


def mount(kind: str, where: Path, options: str) -> None:
    where.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "gpu-lease", str(where)], check=True)


def overlay(lower: Path, layers: Path, where: Path) -> None:
    """What is in `lower`, at `where`; changes go to `layers`."""
    for name in ("upper", "work"):
        (layers / name).mkdir(parents=True)
    mount("overlay", where, f"lowerdir={lower},upperdir={layers}/upper,workdir={layers}/work")


def make_root(work: Path) -> Path:
    """The container's root directory."""
    mount("tmpfs", work, f"size={SIZE},mode=755")
    root = work / "root"
    overlay(Path("/"), work / "system", root)
    # Its own layer: the checkout may lie on another file system, which the first does not show.
    inside = root / ROOT.relative_to("/")
    overlay(ROOT, work / "checkout", inside)
    for path in (ROOT, Path(sys.executable), Path(sys.executable).resolve()):
        open_to_all(root, path)
    return root


def open_to_all(root: Path, path: Path) -> None:
    """Other users' processes run from the checkout and its Python, wherever they are."""
    for directory in path.parents[:-1]:
        there = root / directory.relative_to("/")
        there.chmod(there.stat().st_mode | 0o055)


def leave_out_the_machines_own(root: Path) -> None:
    """What this machine starts, mounts and cleans up is not to happen a second time."""
    units = root / "etc/systemd/system"
    shutil.rmtree(units, ignore_errors=True)
    units.mkdir(parents=True)
    (units / "tmp.mount").symlink_to("/dev/null")  # it would hide a checkout in /tmp
    (root / "etc/tmpfiles.d").mkdir(exist_ok=True)
    (root / "etc/tmpfiles.d/tmp.conf").write_text("")  # and this would empty it
    (root / "etc/fstab").write_text("")
    (root / "etc/hostname").write_text("node1\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost node1\n")
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")


def make_cgroups(name: str) -> list[Path]:
    """A cgroup of our own wherever systemd keeps its units, or it would use ours."""
    made = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            made.append(Path(where) / name)
            made[-1].mkdir()
    if not made:
        raise OSError("no cgroup hierarchy that systemd could use is mounted")
    return made


def remove_cgroups(made: list[Path]) -> None:
    for top in made:
        for directory, _, _ in os.walk(top, topdown=False):
            Path(directory).rmdir()


ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'


def supervise(root: Path, cgroups: list[Path]) -> int:
    """Boot, and wait for the end."""
    nspawn = subprocess.Popen(
        [
            *("sh", "-c", ENTER, "sh", *map(str, cgroups), "--"),
            *(*NSPAWN, f"--directory={root}", "systemd.unit=basic.target"),
        ],
        env={"PATH": os.environ["PATH"]} | NSPAWN_ENV,
    )
    while True:  # process 1 of a namespace inherits what is orphaned in it
        pid, status = os.wait()
        if pid == nspawn.pid:
            return os.waitstatus_to_exitcode(status)


def end_all() -> None:
    """End every process of the namespace but this one; a container dies with its first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def check_alone() -> None:
    """SystemExit unless this is process 1 of namespaces of its own: it mounts over /run and
    ends every process that it sees, which must not be this machine's."""
    if os.getpid() != 1:
        raise SystemExit(
            "tests.systemd.boot runs as process 1 of PID and mount namespaces of its own; "
            "start it through tests/systemd/container.py"
        )


def main() -> int:
    check_alone()
    # Process 1 of a namespace hears no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = Path(sys.argv[-1])
    # What nspawn leaves in /run stays in this namespace.
    subprocess.run(["mount", "-t", "tmpfs", "gpu-lease", "/run"], check=True)
    root = make_root(work)
    cgroups = make_cgroups(f"gpu-lease-{work.name}")
    try:
        if "--probe" in sys.argv:
            return 0
        leave_out_the_machines_own(root)
        return supervise(root, cgroups)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all()
        remove_cgroups(cgroups)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (OSError, subprocess.CalledProcessError) as fault:
        raise SystemExit(f"cannot boot a container here: {fault}") from None

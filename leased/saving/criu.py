"""CRIU, which saves processes with all that the kernel knows of them (https://criu.org)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from leased.base.errors import Refused

NAME = "criu"
PLACES = "/usr/sbin:/sbin:/usr/local/sbin"
CHECK_S = 30.0
INHERITED_FROM = 100  # the first descriptor that a restored process gets from us
COMMON = ("--file-locks", "--manage-cgroups=ignore", "--ghost-limit", "64M", "-v2")


def find() -> str:
    """Where it is. Refused: there is none, or it does not work here."""
    path = shutil.which(NAME, path=f"{os.environ.get('PATH', '')}:{PLACES}")
    if path is None:
        raise Refused("there is no criu on this node", "ask the administrator to install it")
    done = _run([path, "check", *_rights()], CHECK_S)
    if done.returncode:
        raise Refused(
            f"criu does not work for you here: {_last(done.stderr) or done.returncode}",
            "it wants root, or as a file the capabilities cap_checkpoint_restore, cap_sys_ptrace "
            "and cap_setpcap; docs/moving.md",
        )
    return path


def _rights() -> list[str]:
    return ["--unprivileged"] if os.geteuid() else []


def _run(
    command: Sequence[str], most_s: float | None = None, *, files: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=most_s,
            check=False,
            pass_fds=files,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Refused(f"criu: {fault}") from None


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if "Error" in line]
    return lines[-1] if lines else ""


def _why(log: Path) -> str:
    """The first error that criu has logged."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "it says nothing"
    errors = [line.split("Error", 1)[1] for line in lines if "Error" in line]
    return errors[0].lstrip(" :") if errors else "it says nothing"


def dump(criu: str, root: int, images: Path) -> None:
    """Save the processes, and leave them stopped. Refused: it cannot, and they run on."""
    images.mkdir(mode=0o700)
    command = [criu, "dump", "--tree", str(root), "--images-dir", str(images), "--leave-stopped"]
    done = _run([*command, *COMMON, *_rights(), "--log-file", "dump.log"])
    if done.returncode:
        raise Refused(f"criu cannot save it: {_why(images / 'dump.log')}")


def restore(criu: str, images: Path, inherited: Sequence[tuple[int, str]]) -> int:
    """Restore the processes as children of this one; returns the root. inherited: descriptors of
    ours that take the place of files that it had open, by their names. Refused: it cannot."""
    pids, log = images / "restored.pid", images / "restore.log"
    pids.unlink(missing_ok=True)
    files, wishes = [], []
    for n, (file, name) in enumerate(inherited, INHERITED_FROM):
        files.append(os.dup2(file, n))
        wishes += ["--inherit-fd", f"fd[{n}]:{name.lstrip('/')}"]
    command = [criu, "restore", "--images-dir", str(images), "--restore-detached"]
    command += ["--restore-sibling", "--pidfile", str(pids), "--log-file", log.name, *wishes]
    try:
        done = _run([*command, *COMMON, *_rights()], files=files)
    finally:
        for file in files:
            os.close(file)
    if done.returncode:
        raise Refused(f"criu cannot restore it: {_why(log)}")
    return int(pids.read_text())

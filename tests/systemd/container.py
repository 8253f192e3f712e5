"""A container with a real, booted systemd, for the tests of the units."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from leased.processes.identity import ancestors
from tests.slurm.processes import wait_until
from tests.support import machine
from tests.support.children import children_of

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("systemd-nspawn", "unshare", "nsenter", "setpriv", "systemctl")
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def boot_command(directory: Path, *options: str) -> list[str]:
    """boot.py in namespaces of its own. Our end ends it: it then still removes its cgroups."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *(*NAMESPACES, "--kill-child=TERM"),
        *(sys.executable, "-m", "tests.systemd.boot", *options, str(directory)),
    ]


def why_not() -> str:
    """Why no container can be booted on this machine; "" when one can."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed; run `make setup`"
    if os.geteuid() != 0:
        return "a booted systemd needs root; run as root or with sudo"
    if why := machine.no_own_mounts():
        return why
    with tempfile.TemporaryDirectory(prefix="gpul-") as directory:
        done = subprocess.run(
            boot_command(Path(directory), "--probe"),
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
    return " ".join(done.stderr.split()) if done.returncode else ""


class Container:
    """The booted container; a context manager.

    pid: of its process 1, as this machine counts. root: its files, as this machine
    reaches them. env: what commands inside get. work: the directory they start in.
    """

    work = ROOT

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="gpul-", dir="/tmp"))
        self.log = self.directory.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        self.env = {"PATH": PATH, "LANG": "C.UTF-8", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self._end()
        self.directory.rmdir()
        self.log.unlink(missing_ok=True)

    def boot_command(self) -> list[str]:
        """What boots it, in namespaces of its own, and ends it when it is itself ended."""
        return boot_command(self.directory)

    def _boot(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.boot_command(),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until("systemd to be running", self._is_running)

    def _end(self) -> None:
        """Through its supervisor, so that it cleans up; all that is inside ends with it."""
        assert self.process is not None
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._children(self.process.pid):
                os.kill(child, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
                break
        self.process = None

    @staticmethod
    def _children(pid: int) -> list[int]:
        try:
            return children_of(pid)
        except FileNotFoundError:
            return []

    def _is_running(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the container did not boot:\n{self.log.read_text()}")
        self.pid = self.pid or self._find_init()
        if not self.pid:
            return False
        said = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return said in ("running", "degraded")

    def _find_init(self) -> int:
        """The process that is number 1 two PID namespaces below ours; 0 while there is none."""
        assert self.process is not None
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text(errors="replace")  # names are what processes choose
            except OSError:
                continue
            numbers = text.partition("NSpid:")[2].partition("\n")[0].split()
            if numbers[2:] == ["1"] and self.process.pid in ancestors(int(numbers[0])):
                return int(numbers[0])
        return 0

    # -- inside ----------------------------------------------------------------

    def command(self, *command: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The command as this machine starts it to run inside, in the checkout."""
        given = [f"{name}={value}" for name, value in (self.env | dict(env or {})).items()]
        return [
            *("nsenter", "--target", str(self.pid), "--all", "--"),
            *("env", "--ignore-environment", f"--chdir={self.work}", *given, *command),
        ]

    def run(
        self,
        *command: str,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside; check: RuntimeError shows what it wrote."""
        done = subprocess.run(
            self.command(*command, env=env),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            said = done.stdout + done.stderr
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {said}")
        return done

    def systemctl(self, *arguments: str) -> str:
        return self.run("systemctl", *arguments).stdout

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", "--value", "--property", name, unit).strip()

    def journal(self, unit: str) -> str:
        """What systemd has of a unit so far: its own words, and systemd's about it."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout

    def write(self, path: str, text: str) -> None:
        """A file inside, with its directory."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

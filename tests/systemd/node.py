"""A GPU node as a site sets it up: gpu-lease installed in a container, an emulated GPU, jobs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import prometheus_client
import pynvml

from leased.api.client import ask
from tests.emugpu import server
from tests.slurm.processes import wait_until
from tests.support import tenant
from tests.systemd.container import ROOT, Container

SERVICE = "gpu-leased.service"
COPIES = "gpu-leased-copies.service"
SOCKETS = ("gpu-leased.socket", "gpu-leased-admin.socket", "gpu-leased-copies.socket")
UNITS = (SERVICE, COPIES, *SOCKETS)
METRICS = "gpu-leased-metrics.service"  # off by default
PLACER = "gpu-lease-placer.service"  # on the host of slurmctld alone
CONFIG = "/etc/gpu-lease/gpu-leased.toml"
RUN = "/run/gpu-leased"
PYTHON = "/usr/lib/gpu-lease/python"
PRIVATE = "/usr/lib/gpu-lease-emugpu"
GPU_ENV = {"EMUGPU_DIR": "/run/emugpu", "LD_LIBRARY_PATH": PRIVATE}
SLURM = Path("/srv/slurm")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


class Node:
    """The container and what a test asks of it. Jobs are units of its systemd."""

    def __init__(self, container: Container):
        self.container = container
        self.systemctl = container.systemctl
        self.show = container.show
        self.clients: list[subprocess.Popen[str]] = []

    # -- setting up --------------------------------------------------------------

    def set_up(self) -> None:
        """Everything installed, configured and started."""
        self._bring_python()
        self._start_gpu()
        self.install()
        self.configure()
        environment = " ".join(f"{name}={value}" for name, value in GPU_ENV.items())
        self.container.write(
            f"/etc/systemd/system/{SERVICE}.d/gpu.conf", f"[Service]\nEnvironment={environment}\n"
        )
        self.systemctl("daemon-reload")
        self.systemctl("start", *UNITS)

    def _bring_python(self) -> None:
        """For the system's Python: NVML's binding, which no package of Debian 12 has, and the
        library of the metrics, which this machine need not have."""
        found = Path(str(pynvml.__file__))
        where = self.container.run(
            "/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
        ).stdout.strip()
        self.container.write(f"{where}/pynvml.py", found.read_text())
        library = Path(prometheus_client.__file__).parent
        there = self.container.root / f"{where}/prometheus_client".lstrip("/")
        shutil.copytree(library, there, dirs_exist_ok=True)

    def _start_gpu(self) -> None:
        """The emulated GPU as a unit; not in the checkout, which ProtectHome= may hide."""
        there = self.container.root / PRIVATE.lstrip("/")
        there.mkdir()
        for name in ("emugpud", "libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(server.BUILD / name, there / name)
        shutil.copy(server.KERNELS.parent / "models" / "emu-h200-small.ini", there)
        self.container.write(
            "/etc/systemd/system/emugpu.service",
            "[Service]\n"
            f"ExecStart={PRIVATE}/emugpud --dir /run/emugpu --model {PRIVATE}/emu-h200-small.ini\n"
            "RuntimeDirectory=emugpu\n",
        )
        self.systemctl("daemon-reload")
        self.systemctl("start", "emugpu")
        answers = [f"{PRIVATE}/emugpud", "--ctl", "/run/emugpu", "stats"]
        wait_until(
            "the emulated GPU",
            lambda: self.container.run(*answers, check=False).returncode == 0,
        )

    def install(self, version: str = "") -> None:
        """`meson install`, as `make install` does; version: what the daemon then says it is."""
        if version:
            # The container's own copy of the checkout.
            file = self.container.root / str(ROOT / "leased" / "__init__.py").lstrip("/")
            text = re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', file.read_text())
            file.write_text(text)
        meson = shutil.which("meson", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert meson is not None, "meson built the C parts, where is it?"
        self.container.run(meson, "install", "-C", "build/meson", "--no-rebuild")
        # As a package does: the confined daemon could not keep what it compiles at each start.
        self.container.run("/usr/bin/python3", "-m", "compileall", "-q", PYTHON, timeout=300)

    def configure(self, tables: str = "") -> None:
        """gpu-leased.toml: paths, and further tables."""
        slurm_conf = SLURM / "etc" / "slurm.conf"
        if not (self.container.root / str(slurm_conf).lstrip("/")).exists():
            self.container.write(str(slurm_conf), "ClusterName=none\n")  # of no node's GPUs
        daemon = f'[daemon]\nslurm_conf = "{slurm_conf}"\n'
        self.container.write(CONFIG, daemon + tables)

    def _drop_in_file(self, unit: str) -> Path:
        return self.container.root / f"etc/systemd/system/{unit}.d/test.conf"

    def drop_in(self, text: str, unit: str = SERVICE) -> None:
        """Change a unit by a drop-in, until reset()."""
        file = self._drop_in_file(unit)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        self.systemctl("daemon-reload")
        self.systemctl("stop", *UNITS)
        self.systemctl("start", *UNITS)

    def reset(self) -> None:
        """As after set_up(): no jobs, no drop-in of a test, everything running."""
        wait_until("the jobs to end", self._killed)
        for client in self.clients:
            client.communicate()
        self.clients.clear()
        self.configure()
        for unit in UNITS:
            self._drop_in_file(unit).unlink(missing_ok=True)
        self.systemctl("stop", METRICS)
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed")
        # Not "restart", over which systemd keeps what it has of the previous daemon.
        self.systemctl("stop", *UNITS)
        self.systemctl("start", *UNITS)
        for job in self.status()["tenants"]:
            self.ask({"op": "job_end", "job_id": job["job_id"]})

    def _killed(self) -> bool:
        """End all processes of all jobs; whether nobody waits for them any more."""
        self.container.run("systemctl", "kill", "--signal=KILL", "job-*", check=False)
        return all(client.poll() is not None for client in self.clients)

    # -- the daemon ---------------------------------------------------------------

    def socket(self, name: str) -> Path:
        return self.container.root / f"{RUN}/{name}.sock".lstrip("/")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return ask(self.socket("admin"), request)

    def status(self) -> dict[str, Any]:
        return self.ask({"op": "status"})

    def tenant(self, job: int) -> dict[str, Any]:
        return next((t for t in self.status()["tenants"] if t["job_id"] == job), {})

    def states(self, *jobs: int) -> list[str]:
        return [self.tenant(job).get("state", "unknown") for job in jobs]

    @property
    def main_pid(self) -> int:
        """The daemon, as the container counts; 0 while there is none."""
        return int(self.show(SERVICE, "MainPID"))

    def replaced(self, before: int) -> Callable[[], bool]:
        """Whether another daemon than `before` is up."""
        return lambda: (
            self.show(SERVICE, "ActiveState") == "active" and self.main_pid not in (0, before)
        )

    def journal(self) -> str:
        return self.container.journal(SERVICE)

    # -- jobs -----------------------------------------------------------------------

    def unit(self, name: str, *command: str) -> subprocess.Popen[str]:
        """Run a command as a unit of its own, with our pipes."""
        env = self.container.env | GPU_ENV
        process = subprocess.Popen(
            self.container.command(
                *("systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--unit={name}"),
                *(f"--working-directory={ROOT}", *(f"--setenv={k}={v}" for k, v in env.items())),
                *("--", *command),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.clients.append(process)
        return process

    def job(
        self, number: int, options: str, code: str, user: Sequence[str] = NOBODY
    ) -> subprocess.Popen[str]:
        """A Python program as a job without Slurm, as the user nobody."""
        return self.unit(
            f"job-{number}",
            *tenant.command(
                f"{RUN}/admin.sock", number, options, *user, sys.executable, "-c", code
            ),
        )

    def sockets_of(self, pid: int) -> set[str]:
        """The sockets that a process inside has open: socket:[inode]."""
        directory = self.container.root / f"proc/{pid}/fd"
        targets = (str(file.readlink()) for file in directory.iterdir())
        return {target for target in targets if target.startswith("socket:")}

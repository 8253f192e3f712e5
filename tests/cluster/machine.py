"""One machine of the cluster: booted, with an address, an emulated driver and a user."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tests.cluster.boot import ADDRESSES
from tests.cluster.network import Network
from tests.emugpu import server
from tests.slurm.processes import wait_until
from tests.systemd.container import NAMESPACES, ROOT, Container

USER = "alice"
UNIT = "gpu-leased.service"
CONFIG = "/etc/gpu-lease/gpu-leased.toml"
DRIVER = "/usr/lib/emulated-driver"
GPUS = 2
PROGRAM = "/srv/job.py"
TRACE = "run/emugpu/trace"  # who computed when on its GPUs
BOOT_S = 180.0


class Machine(Container):
    """A context manager, as Container. name: one of ADDRESSES. tree: its system's directory."""

    work = Path("/")

    def __init__(self, name: str, tree: Path, network: Network):
        super().__init__()
        self.name, self.tree, self.network = name, tree, network
        self.env = {key: self.env[key] for key in ("PATH", "LANG")} | {
            "DEBIAN_FRONTEND": "noninteractive",
            "EMUGPU_DIR": "/run/emugpu",  # a real driver is found without a word
        }

    def boot_command(self) -> list[str]:
        return [
            *("setpriv", "--pdeathsig", "KILL", "--", *self.network.enter()),
            *(*NAMESPACES, "--kill-child=TERM"),
            *(sys.executable, "-m", "tests.cluster.boot", self.name, ADDRESSES[self.name]),
            *(str(self.tree), str(self.directory)),
        ]

    def set_up(self) -> None:
        """What a GPU node has before us: a user, a driver and GPUs."""
        number = list(ADDRESSES).index(self.name)  # its GPUs' UUIDs are not those of other nodes
        self.run("useradd", "--create-home", "--uid=1500", USER)
        there = self.root / DRIVER.lstrip("/")
        there.mkdir(parents=True)
        for name in ("emugpud", "libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(server.BUILD / name, there / name)
        shutil.copy(server.KERNELS.parent / "models" / "emu-h200-small.ini", there)
        shutil.copy(server.KERNELS, self.root / "srv")
        program = ROOT / "tests" / "support" / "plain_job.py"
        shutil.copy(program, self.root / PROGRAM.lstrip("/"))
        self.write("/etc/ld.so.conf.d/emulated-driver.conf", f"{DRIVER}\n")
        self.run("ldconfig")
        self.write(
            "/etc/systemd/system/emugpu.service",
            f"[Service]\nExecStart={DRIVER}/emugpud --dir /run/emugpu --devices {GPUS} "
            f"--model {DRIVER}/emu-h200-small.ini --node {number} "
            f"--trace /{TRACE}\n"
            "RuntimeDirectory=emugpu\n"
            "[Install]\nWantedBy=multi-user.target\n",
        )
        self.write(
            "/etc/systemd/system.conf.d/emugpu.conf",
            "[Manager]\nDefaultEnvironment=EMUGPU_DIR=/run/emugpu\n",
        )
        self.systemctl("daemon-reexec")
        self.systemctl("enable", "--now", "emugpu")

    def shell(self, line: str, check: bool = True, timeout: float = 300) -> str:
        """A line of an administrator, in /debs: what it said. RuntimeError where it fails."""
        done = self.run("sh", "-c", f"cd /debs && {line} 2>&1", check=check, timeout=timeout)
        return done.stdout

    def fails(self, line: str) -> str:
        """What a line said that has to fail."""
        done = self.run("sh", "-c", f"cd /debs && {line} 2>&1", check=False, timeout=300)
        assert done.returncode != 0, done.stdout
        return done.stdout

    def configure(self, table: str, text: str) -> None:
        """A line in a table of gpu-leased.toml, in which all of them stand commented."""
        file = self.root / CONFIG.lstrip("/")
        file.write_text(
            re.sub(rf"(?m)^\[{table}\]$", f"[{table}]\n{text}", file.read_text(), count=1)
        )

    def drop_in(self, unit: str, text: str) -> None:
        """As `systemctl edit` writes it."""
        self.write(f"/etc/systemd/system/{unit}.d/override.conf", text)
        self.systemctl("daemon-reload")

    def reboot(self) -> None:
        """Returns when its systemd is up again."""
        self.goes_down("--no-block", "reboot")
        self.comes_up()

    def goes_down(self, *how: str) -> None:
        """By this order for systemctl; it is booted again at once."""
        before = self.pid
        self.run("systemctl", *how, check=False)
        wait_until(
            f"{self.name} to go down", lambda: not Path(f"/proc/{before}").exists(), timeout=BOOT_S
        )
        self.pid = 0

    def comes_up(self) -> None:
        wait_until(f"{self.name} to boot", self._is_running, timeout=BOOT_S)

    def packages(self, directory: str) -> list[str]:
        """Our packages below /debs."""
        found = (self.root / "debs" / directory).glob("*.deb")
        return sorted(f"./{directory}/{file.name}" for file in found)


def node_tree(name: str) -> Path:
    """The tree that run.sh makes of a Debian release."""
    return ROOT / "build" / "package-trees" / f"{name}-node"

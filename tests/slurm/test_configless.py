"""A node whose slurmd has no files and asks slurmctld for them (slurmd --conf-server).

Such a node has its configuration in /run/slurm/conf alone. So slurmd, the daemon and gpu-leasectl
run here in a mount namespace with a /run of its own, and without SLURM_CONF.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import PRELOAD, Leased
from tests.slurm.processes import Daemon, wait_until
from tests.slurm.site import Site
from tests.support.machine import own_mounts_required
from tests.support.work_dir import work_dir

FETCHED = "/run/slurm/conf"
# munge's socket is at its usual place: what else there is to know comes through it.
OWN_RUN = """
mount -t tmpfs none /run && mkdir /run/munge && ln -s "$1" /run/munge/munge.socket.2 &&
shift && exec "$@"
"""


def without_files(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != "SLURM_CONF"}


class Configless(PrivateSlurm):
    """Its nodes have no files. slurmd: the process that has the node's namespace."""

    slurmd: Daemon

    def start_slurmd(self, node: str, *arguments: str) -> Daemon:
        server = f"127.0.0.1:{self.layout.ports['slurmctld']}"
        command = ["/usr/sbin/slurmd", "-D", "-N", node, "--conf-server", server, *arguments]
        own = ["unshare", "--mount", "sh", "-c", OWN_RUN, "sh", str(self.layout.munge_socket)]
        log = self.layout.log / f"slurmd-{node}.out"
        daemon = Daemon.start(f"slurmd-{node}", [*own, *command], log, without_files(self.env))
        self.daemons.append(daemon)
        self.slurmd = daemon
        return daemon

    def on_node(self, *command: str) -> list[str]:
        """The command as it is run on the node."""
        return ["nsenter", "--mount", "-t", str(self.slurmd.process.pid), *command]


class LeasedOnNode(Leased):
    """The daemon on the node."""

    slurm: Configless

    def _command(self) -> list[str]:
        return self.slurm.on_node(*super()._command())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    own_mounts_required()
    work = work_dir()
    work.chmod(0o755)
    try:
        with EmulatedGpu(work / "gpu") as gpu:
            slurm = Configless(
                work / "slurm",
                slurm_conf=["SlurmctldParameters=enable_configless"],
                plugin_args=[f"admin_socket={work}/run/admin.sock"],
                env=gpu.env,
            )
            with slurm:
                leased = LeasedOnNode(work / "leased", work / "run", without_files(slurm.env))
                leased.slurm = slurm
                with leased:
                    (work / "out").mkdir()
                    yield Site(slurm, leased, work / "out")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def test_the_plugin_is_found_and_jobs_share(site: Site) -> None:
    done = site.run("--gres=shard:1", "printenv", "SLURM_CONF", "LD_PRELOAD")
    assert done.returncode == 0, done.stderr
    conf, preload = done.stdout.split()
    assert conf.endswith("/conf-cache/slurm.conf"), "the node does not have its own files"
    assert preload == str(PRELOAD)


def test_the_daemon_asks_slurm(site: Site) -> None:
    def cluster() -> object:
        return ask(site.leased.admin_socket, {"op": "status"})["cluster"]["name"]

    wait_until("the daemon to know its cluster", lambda: cluster() == "gpulease")


def test_check_looks_at_what_was_fetched(site: Site) -> None:
    assert isinstance(site.slurm, Configless)
    words = ["-m", "leased.cli.ctl", "--config", str(site.leased.config), "check", "--json"]
    command = site.slurm.on_node(sys.executable, *words, "--node", site.slurm.node)
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=without_files(site.slurm.env),
    )
    found = {finding["id"]: finding for finding in json.loads(done.stdout)}
    assert found["slurm-conf"]["text"] == f"Slurm is configured by {FETCHED}/slurm.conf"
    assert found["plugstack"]["text"] == f"{FETCHED}/plugstack.conf has gpu_share.so"
    assert found["gres-conf"]["text"].startswith(f"slurmd takes {FETCHED}/gres.conf")
    of_slurm = ("plugstack", "plugin-file", "plugin-version", "node-gres", "gres-files")
    assert {found[name]["level"] for name in of_slurm} == {"ok"}, found
    assert Path(FETCHED).exists() is False, "this host has such a folder itself"

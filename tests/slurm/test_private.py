"""The private Slurm of the tests is private: no other user of the machine reaches into it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import conf
from tests.slurm.cluster import ROOT, PrivateSlurm
from tests.slurm.processes import Daemon

LISTENS = "0A"
LOOPBACK = "7F"  # the last byte of an address as /proc/net/tcp writes it: 127.x.x.x

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a private Slurm needs root")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    with PrivateSlurm(tmp_path_factory.mktemp("private"), plugin=None) as started:
        yield started


def test_the_nodes_of_two_have_different_names(tmp_path: Path) -> None:
    """slurmd names cgroups by its node, and both have a job 1."""
    one, again, other = (
        conf.Layout(tmp_path / name, tmp_path, nodes=2, gpus=1, shards_per_gpu=1, gpu_files=[])
        for name in ("one", "one", "other")
    )
    assert one.node_names == again.node_names, "slurmctld finds its nodes again"
    assert len({*one.node_names, *other.node_names}) == 4


def inodes(daemon: Daemon) -> set[str]:
    """The sockets that a process has open, by inode."""
    files = Path(f"/proc/{daemon.process.pid}/fd").iterdir()
    links = (str(file.readlink()) for file in files)
    return {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}


def listening(daemon: Daemon) -> list[str]:
    """The TCP addresses on which a daemon listens, as the kernel writes them."""
    own = inodes(daemon)
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{daemon.process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and fields[9] in own:
                found.append(fields[1].partition(":")[0])
    return found


def test_every_daemon_listens_on_the_loopback_interface_alone(slurm: PrivateSlurm) -> None:
    by_name = {daemon.name: listening(daemon) for daemon in slurm.daemons}
    for name in ("slurmctld", "slurmdbd", f"slurmd-{slurm.node}"):
        assert by_name[name], f"{name} listens nowhere: this test looks at the wrong process"
    assert by_name["mariadbd"] == []
    outside = {
        name: address
        for name, addresses in by_name.items()
        for address in addresses
        if not address.endswith(LOOPBACK)
    }
    assert not outside


def test_no_other_user_reaches_the_database(slurm: PrivateSlurm) -> None:
    query = ["mariadb", "--no-defaults", f"--socket={slurm.layout.database_socket}", "--user=root"]
    query += ["--batch", "--skip-column-names", "--execute=select 1"]
    assert slurm.run(*query).stdout == "1\n"
    refused = slurm.run(*query, user="nobody", check=False)
    assert refused.returncode != 0
    assert "Permission denied" in refused.stderr or "(13)" in refused.stderr


def test_the_database_writes_no_file_outside_its_own(slurm: PrivateSlurm, tmp_path: Path) -> None:
    target = tmp_path / "written"
    done = slurm.run(
        *("mariadb", "--no-defaults", f"--socket={slurm.layout.database_socket}", "--user=root"),
        f"--execute=select 'x' into outfile '{target}'",
        check=False,
    )
    assert "secure-file-priv" in done.stderr
    assert not target.exists()


def with_a_host_name_of_its_own(script: str, *unshare: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a UTS namespace, so that this machine keeps its name."""
    return subprocess.run(
        ["unshare", "--uts", *unshare, sys.executable, "-c", script],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "answer", ["raise socket.gaierror", "return lookup('192.0.2.1', *more, **most)"]
)
def test_a_host_whose_name_leads_nowhere_or_elsewhere_gets_another_one_for_the_tests(
    answer: str,
) -> None:
    """Also where /etc/hosts does not have localhost, or is not there."""
    script = (
        "import socket; lookup = socket.getaddrinfo\n"
        "def getaddrinfo(name, *more, **most):\n"
        "    if name.isdigit(): return lookup(name, *more, **most)\n"
        f"    {answer}\n"
        "socket.getaddrinfo = getaddrinfo\n"
        "from tests.slurm.loopback import loopback_name\n"
        "print(loopback_name(), socket.gethostbyname(socket.gethostname()))"
    )
    done = with_a_host_name_of_its_own(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2130706433 127.0.0.1\n"


def test_a_machine_whose_interfaces_have_no_address_is_told_so() -> None:
    """Slurm then finds no address, not even that of a number."""
    script = "from tests.slurm.loopback import loopback_name; loopback_name()"
    done = with_a_host_name_of_its_own(script, "--net")
    assert "ip address add 192.0.2.1/32 dev lo" in done.stderr


def test_the_container_of_the_systemd_tests_does_not_start_by_hand() -> None:
    """It mounts over /run and ends every process that it sees: right in its own namespace only."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.systemd.boot", "/nowhere"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "process 1" in done.stderr

"""Installation, removal and Slurm upgrades in the wrong order: nothing stops and no node drains.

The line is the one that is shipped, in a file that plugstack.conf includes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.slurm.cluster import PLUGIN
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site

SHIPPED = ROOT / "slurm-conf" / "plugstack.conf.d" / "gpu-lease.conf"
OF_ANOTHER_SLURM = """
#include <slurm/slurm.h>
const char plugin_name[] = "gpu_share";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUM(99, 11, 0);
const unsigned int spank_plugin_version = 1;
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Site]:
    with sharing_site() as made:
        yield made


class Host:
    """The files that a site installs, each where it belongs, and Slurm's own that includes them."""

    def __init__(self, site: Site):
        self.site = site
        self.plugin = site.work / "gpu_share.so"
        self.line = site.work / "plugstack.conf.d" / "gpu-lease.conf"
        self.line.parent.mkdir(exist_ok=True)
        (site.work / "gpu_share_python.so").unlink(missing_ok=True)
        for name in ("gpu_share_python.so", "gpu-lease-allocation"):
            shutil.copy(PLUGIN.parent / name, site.work)
        conf = site.slurm.layout.etc / "plugstack.conf"
        conf.write_text(f"include {self.line.parent}/*.conf\n")

    def put_plugin(self) -> None:
        fresh = self.plugin.with_suffix(".new")
        shutil.copy(PLUGIN, fresh)
        fresh.rename(self.plugin)

    def put_line(self) -> None:
        admin = f"admin_socket={self.site.leased.admin_socket}"
        text = SHIPPED.read_text().replace(" gpu_share.so ", f" {self.plugin} {admin} ")
        assert str(self.plugin) in text
        self.line.write_text(text)

    def put_plugin_of_another_slurm(self) -> None:
        source = self.site.work / "other.c"
        source.write_text(OF_ANOTHER_SLURM)
        fresh = self.plugin.with_suffix(".new")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", fresh, source], check=True)
        fresh.rename(self.plugin)

    def restart_slurmd(self) -> None:
        node = self.site.slurm.node
        self.site.slurm.stop_daemon(f"slurmd-{node}")
        log = self.site.slurm.layout.log / f"slurmd-{node}.log"
        before = log.read_text().count("slurmd started")
        slurmd = self.site.slurm.start_slurmd(node)
        slurmd.wait_ready(lambda: log.read_text().count("slurmd started") > before)
        self.site.node_is_idle()

    def jobs_run(self) -> None:
        """Jobs of all three commands run, and no node drains by them or their epilogs."""
        slurm = self.site.slurm
        for command in ("srun", "salloc"):
            done = slurm.run(command, "true", check=False, cwd=self.site.work)
            assert done.returncode == 0, done.stderr
        # `sbatch --wait` would look for the first time after two seconds.
        assert slurm.wait(slurm.sbatch("--wrap=true", cwd=self.site.work)) == "COMPLETED"
        wait_until("the jobs to be over", lambda: slurm.run("squeue", "-h").stdout == "")
        self.site.node_is_idle()

    def shares(self) -> bool:
        """Whether a job with a shard gets the interposer."""
        done = self.site.run("--gres=shard:1", "printenv", "LD_PRELOAD")
        self.site.node_is_idle()
        return "libgpulease.so" in done.stdout


@pytest.fixture
def host(cluster: Site) -> Host:
    made = Host(cluster)
    made.put_plugin()
    made.put_line()
    made.restart_slurmd()
    return made


def test_the_line_that_is_shipped_shares(host: Host) -> None:
    host.jobs_run()
    assert host.shares()
    done = host.site.run("--gres=shard:1", "--gpu-share=tq:1ms", "true")
    assert done.returncode == 1
    assert "tq of 0.001s is outside this site's limits" in done.stderr
    done = host.site.run("--gres=shard:1", "--gpu-share=oversub:on,memory:swap", "true")
    assert done.returncode == 1
    assert done.stderr.count("gpu-share: ") == 1


def test_the_plugin_goes_before_its_line(host: Host) -> None:
    host.plugin.unlink()
    host.jobs_run()
    assert not host.shares()
    host.restart_slurmd()
    host.jobs_run()
    done = host.site.slurm.run("sbatch", "--gpu-share=tq:5", "--wrap=true", check=False)
    assert "--gpu-share" in done.stderr, "the user is told that there is no such option"
    assert done.returncode != 0


def test_the_line_goes_before_the_plugin(host: Host) -> None:
    host.line.unlink()
    host.jobs_run()
    host.plugin.unlink()
    host.jobs_run()
    host.restart_slurmd()
    host.jobs_run()


def test_the_line_comes_before_the_plugin(host: Host) -> None:
    host.plugin.unlink()
    host.restart_slurmd()
    host.jobs_run()
    host.put_plugin()
    host.jobs_run()
    assert host.shares(), "without a restart of slurmd"


def test_slurm_is_upgraded_under_the_plugin(host: Host) -> None:
    host.put_plugin_of_another_slurm()
    host.jobs_run()
    assert not host.shares()
    host.restart_slurmd()
    host.jobs_run()


def test_the_plugin_is_replaced_under_a_job(host: Host) -> None:
    site = host.site
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null", "--wrap", "exec sleep 600"), cwd=site.work
    )
    site.wait_for_tenant(job)
    host.put_plugin()
    done = site.slurm.run("srun", f"--jobid={job}", "--overlap", "printenv", "LD_PRELOAD")
    assert "libgpulease.so" in done.stdout
    site.slurm.run("scancel", str(job))
    assert site.slurm.wait(job) == "CANCELLED"
    wait_until("its epilog to tell the daemon", lambda: job not in site.tenants())
    site.node_is_idle()


@pytest.mark.parametrize("directory", ["empty", "missing"])
def test_an_include_of_nothing_is_harmless(host: Host, directory: str) -> None:
    host.line.unlink()
    if directory == "missing":
        host.line.parent.rmdir()
    host.jobs_run()
    host.restart_slurmd()


def test_a_required_line_would_stop_slurm(host: Host) -> None:
    """Why the line is not `required`: the reason that docs/admin.md gives, kept true."""
    host.line.write_text(host.line.read_text().replace("optional ", "required "))
    host.jobs_run()
    held = host.site.slurm.sbatch("-o", "/dev/null", "--wrap", "exec sleep 600", cwd=host.site.work)
    wait_until("the job", lambda: host.site.slurm.job(held)["JobState"] == "RUNNING")
    host.plugin.unlink()
    done = host.site.slurm.run("sbatch", "--wrap=true", check=False, cwd=host.site.work)
    assert done.returncode != 0
    host.site.slurm.run("scancel", str(held))
    wait_until("its epilog", lambda: "drain" in host.site.slurm.node_state())
    node = host.site.slurm.node
    host.site.slurm.stop_daemon(f"slurmd-{node}")
    slurmd = host.site.slurm.start_slurmd(node)
    assert slurmd.process.wait(60) != 0, "slurmd does not start"
    host.site.slurm.daemons.remove(slurmd)
    host.put_plugin()
    host.site.slurm.start_slurmd(node)
    host.site.slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until("the node", lambda: host.site.slurm.node_state() == "idle", timeout=90)

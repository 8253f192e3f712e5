"""docs/admin.md from its first line to its last, typed as it stands on two booted machines.

Run by `make test-cluster`. What only the names of this cluster and the place of its packages are
different in is changed (`typed`); everything else is what a new administrator has on the screen.
"""

from __future__ import annotations

import pytest

from tests.cluster.machine import CONFIG, UNIT, Machine
from tests.cluster.site import Site
from tests.docs import documents
from tests.slurm.processes import wait_until

ADMIN = "docs/admin.md"
BIG, SMALL = 160, 8  # MiB: two big ones do not fit on a GPU of 256
ENDLESS = 1_000_000  # steps
NEXT = "99.0.0"

# In sentences of docs/troubleshooting.md, but not what an administrator of a node types.
NOT_TYPED = {
    "gpu-leasectl checkpoint": "a name; it wants a job and a directory",
    "gpu-leasectl drain": "a name; it wants a GPU",
    "gpu-leasectl move": "a name; it wants a job and a GPU",
    "gpu-leasectl run": "a name; it wants a directory and a program",
    "gpu-leasectl set": "a name; it wants a key and a value",
    'eval "$(gpu-leasectl env)"': "of users; check_user.py types it",
    **dict.fromkeys(("ulimit -n", "ulimit -u", "ulimit -v"), "of users' shells"),
}


def typed(machine: Machine, line: str, packages: str = "now") -> str:
    """What a line of the document says on a machine; RuntimeError where it fails."""
    line = line.replace("nodename=gpu1", f"nodename={machine.name}")
    said = machine.shell(f"cd {packages} && {line}", timeout=600)
    print(f"{machine.name}$ {line}\n{said}")
    return said


@pytest.fixture(scope="module")
def site(bare: Site) -> Site:
    """After the first section, without the job that it ends with."""
    for machine in bare.machines:
        for line in documents.section(ADMIN, "Five lines")[:-1]:
            typed(machine, line)
    bare.await_idle()
    return bare


def test_a_first_job_shares(site: Site) -> None:
    site.as_user(documents.shown(ADMIN, "srun --gres=shard:1"))


def test_slurm_s_configuration_is_checked_on_the_controller_s_host(site: Site) -> None:
    """Without the two files, and with them, after `scontrol reconfigure`."""
    check = documents.shown(ADMIN, "gpu-leasectl check --controller")
    assert "does not ask gpu_share.lua" in typed(site.head, check)
    for name in ("job_submit.lua", "gpu_share.lua"):
        site.head.shell(f"cp /usr/share/gpu-lease/slurm-conf/{name} /etc/slurm/")
    typed(site.head, "scontrol reconfigure")
    assert "does not ask" not in typed(site.head, check)
    by_environment = "GPU_SHARE= sbatch --export=GPU_SHARE=tq:never --gres=shard:1 --wrap true"
    assert "is no value of --gpu-share" in site.as_user(by_environment, check=False)


def test_a_configless_node_needs_nothing_more(site: Site) -> None:
    node, files = site.other, "slurm.conf gres.conf cgroup.conf plugstack.conf job_submit.lua"
    site.head.shell("echo SlurmctldParameters=enable_configless >>/etc/slurm/slurm.conf")
    site.head.systemctl("restart", "slurmctld")
    site.await_idle()
    node.systemctl("stop", "slurmd")
    node.shell(f"mkdir /root/kept && cd /etc/slurm && mv {files} /root/kept")
    server = "SLURMD_OPTIONS=--conf-server=node1"
    node.drop_in(
        "slurmd.service", f"[Unit]\nConditionPathExists=\n[Service]\nEnvironment={server}\n"
    )
    node.shell(f"echo {server} >/etc/default/slurmd")
    node.systemctl("start", "slurmd")
    site.await_idle()
    node.systemctl("restart", UNIT)
    site.complete(*(site.submit("node2", BIG, 4) for _ in range(2)))
    typed(node, documents.shown(ADMIN, "gpu-leasectl check").removesuffix(" --controller"))
    node.systemctl("stop", "slurmd")
    node.shell("mv /root/kept/* /etc/slurm/ && rm /etc/default/slurmd")
    node.shell("rm -r /etc/systemd/system/slurmd.service.d && systemctl daemon-reload")
    node.systemctl("start", "slurmd")
    site.await_idle()


def test_the_daemon_is_configured(site: Site) -> None:
    site.head.configure("defaults", 'options = "tq:7"')
    for line in documents.section(ADMIN, "Configure the daemon"):
        typed(site.head, line)
        if "lock=on" in line:
            device = site.status(site.head)["devices"][0]
            assert (device["lock"], device["quantum_s"]) == ("on", 60)
    device = site.status(site.head)["devices"][0]
    assert (device["lock"], device["quantum_s"]) == (None, None)
    job = site.submit("node1", SMALL, ENDLESS, 50, "--gres=shard:1")
    site.get_on(job)
    (tenant,) = site.status(site.head)["tenants"]
    assert tenant["quantum_s"] == 7
    site.finish(job)


def test_directories_of_the_site_s_own_need_a_drop_in(site: Site) -> None:
    site.other.configure("daemon", 'state_dir = "/srv/gpu-leased"')
    site.other.shell("mkdir /srv/gpu-leased")
    site.other.drop_in(UNIT, "[Service]\nReadWritePaths=/srv/gpu-leased\n")
    site.other.systemctl("restart", UNIT)
    assert (site.other.root / "srv/gpu-leased/usage.db").exists()
    site.other.shell(f"sed -i '/^state_dir/d' {CONFIG}; systemctl revert {UNIT}")
    site.other.systemctl("restart", UNIT)


def test_in_operation(site: Site) -> None:
    job = site.submit("node1", SMALL, ENDLESS)
    site.get_on(job)
    site.head.configure("metrics", 'listen = "127.0.0.1:9747"')
    said = {}
    for line in documents.section(ADMIN, "In operation"):
        if "drain 0" in line:
            site.finish(job)
            site.usage(job)
        said[line.partition(" -")[0]] = typed(site.head, line)
    assert str(job) in said["gpu-leasectl top"]
    assert said["gpu-leasectl report"].count("\n") >= 2, "nothing is reported"
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9747').read().decode())"
    assert "gpu_lease_" in site.head.run("python3", "-I", "-c", read).stdout


def test_what_troubleshooting_tells_administrators_can_be_typed(site: Site) -> None:
    job = site.submit("node1", SMALL, ENDLESS)
    site.get_on(job)
    lines = documents.in_sentences("docs/troubleshooting.md")
    typed(site.head, "scontrol suspend JOB".replace("JOB", str(job)))
    for line in sorted(lines, key=lambda line: line.startswith("scancel")):
        if line not in NOT_TYPED:
            typed(site.head, line.replace("JOB", str(job)))
    assert site.end(job) == ["CANCELLED"]
    assert set(lines) >= set(NOT_TYPED)


def test_a_release_is_upgraded(site: Site) -> None:
    for machine in site.machines:
        typed(machine, documents.section(ADMIN, "Upgrade")[0], "next")
        typed(machine, "gpu-leasectl check")
        assert site.status(machine)["version"] == NEXT


def test_the_driver_can_be_unloaded(site: Site) -> None:
    """The emulated driver's server stands for its kernel modules: it goes and comes back."""
    node = site.other
    typed(node, documents.shown(ADMIN, "scontrol update nodename=gpu1 state=drain reason=driver"))
    typed(node, documents.shown(ADMIN, "gpu-leasectl drain all --wait"))
    closed = "NVML is closed: all devices are drained"
    wait_until(closed, lambda: closed in node.journal(UNIT))
    node.systemctl("restart", "emugpu")
    typed(node, documents.shown(ADMIN, "gpu-leasectl resume all"))
    typed(node, documents.shown(ADMIN, "scontrol update nodename=gpu1 state=resume"))
    site.await_idle()
    site.complete(*(site.submit("node2", BIG, 4) for _ in range(2)))


def test_it_is_removed(site: Site) -> None:
    node = site.other
    typed(node, documents.shown(ADMIN, "scontrol update nodename=gpu1 state=drain reason=gpu-l"))
    typed(node, documents.shown(ADMIN, "apt remove"))
    typed(node, documents.shown(ADMIN, "systemctl restart slurmd"))
    typed(node, documents.shown(ADMIN, "scontrol update nodename=gpu1 state=resume"))
    site.await_idle()
    site.complete(site.submit("node2", SMALL, 2, 0, "--gres=gpu:1"))


def test_it_is_installed_without_packages_and_removed(site: Site) -> None:
    """Of an image, which `make install DESTDIR=` made; run.sh has left it in /debs/image."""
    node = site.other
    install = "cp -a image/. / && systemctl daemon-reload"
    node.shell(install)
    enable, link, restart, check = documents.section(ADMIN, "Five lines")[1:5]
    for line in (enable, link, restart, check):
        typed(node, line)
    site.await_idle()
    site.complete(*(site.submit("node2", BIG, 4) for _ in range(2)))
    # Slurm is upgraded: the line goes first and comes last.
    line_away = documents.shown(ADMIN, "rm /etc/slurm")
    again = documents.shown(ADMIN, "ln -s /usr/share/gpu-lease/slurm-conf")
    typed(node, line_away)
    node.shell(install)
    for line in (again, restart, documents.shown(ADMIN, "systemctl restart gpu-leased")):
        typed(node, line)
    site.await_idle()
    site.complete(site.submit("node2", BIG, 4))
    typed(node, line_away)
    typed(node, restart)
    for line in documents.section(ADMIN, "Remove"):
        if line.startswith("systemctl disable"):
            typed(node, line)
    node.shell(
        "cd image && find . -type f -o -type l | sed 's/^\\.//' | xargs rm"
    )  # make uninstall
    typed(node, documents.shown(ADMIN, "rm -rf /etc/gpu-lease"))
    assert node.run("pgrep", "-f", "/usr/sbin/gpu-lease", check=False).stdout == ""
    site.complete(site.submit("node2", SMALL, 2, 0, "--gres=gpu:1"))

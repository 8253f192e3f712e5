"""gpu-leasectl check: every fault that it knows is found, named, and has a remedy."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from _gpulease import lib

from leased import __version__
from leased.base import elf
from leased.base.errors import NoAnswer, Refused
from leased.cli import check, ctl
from leased.cli.checks import cgroups, libraries
from leased.cli.checks.finding import OK, WARNING
from leased.cli.subcommand import ExitStatus
from leased.gpus.nvml import Silent
from leased.slurm import gres_text, hostlists, slurmconf
from leased.slurm.node_gres import NodeGres, SlurmGpu
from tests.cli.check_node import (
    HOST,
    VERSION,
    Case,
    Node,
    Spoil,
    edit,
    fault,
    make_library,
    named,
    node,
    plugin,
    put_plugins_of_slurm,
    remove,
    says,
    set_memory_limit,
    sets,
    several,
    status,
    toml,
    warning,
    write,
)
from tests.slurm.cluster import PLUGIN
from tests.slurm.leased import PRELOAD

__all__ = ["node"]


def need_a_missing_library(node: Node) -> None:
    gone = node.root / "lib" / "libgone.so"
    make_library(gone, "int gone(void) { return 1; }")
    make_library(
        node.preload,
        "int gone(void); int f(void) { return gone(); }",
        "",
        f"-L{gone.parent}",
        "-lgone",
    )
    gone.unlink()


def interposer_of(node: Node, release: str, wire: int) -> None:
    make_library(node.preload, "", f"gpu-lease interposer {release} wire {wire}")


def drop_socket(node: Node) -> None:
    (node.root / "run" / "tenant.sock").unlink()


def include_plugins(node: Node) -> None:
    folder = node.root / "etc" / "plugstack.conf.d"
    folder.mkdir()
    (folder / "gpu.conf").write_text((node.root / "etc" / "plugstack.conf").read_text())
    node.write(
        "plugstack.conf", "# ours\noptional /x/other.so a=b\ninclude plugstack.conf.d/*.conf\n"
    )


def test_a_node_in_order_has_no_faults_and_no_warnings(node: Node) -> None:
    findings = node.look()
    assert [f for f in findings if f.level != "ok"] == []
    assert len({f.id for f in findings}) == len(findings), "an id stands for one thing"
    assert "gpu-lease interposer" in PRELOAD.read_bytes().decode("latin-1")
    assert node.found["gres-count"].text == "8 shards on 2 GPUs: at most 4 jobs can be on one"


FINE: dict[str, Spoil] = {
    "included files": include_plugins,
    "a plugin in PluginDir": several(
        lambda n: n.edit("plugstack.conf", str(n.plugin), "gpu_share.so"),
        lambda n: n.asked.update(plugindir=f"/nonexistent:{n.root}/lib"),
    ),
    "GPUs by AutoDetect": write("gres.conf", "AutoDetect=nvml\nName=shard Count=8\n"),
    "shards by device file": lambda n: n.edit(
        "gres.conf", "Name=shard Count=8", f"Name=shard Count=8 File={n.root}/dev[0-1]"
    ),
    "no line of shards": edit("gres.conf", f"NodeName={HOST},other[1-3] Name=shard Count=8\n", ""),
    "more in gres.conf than in slurm.conf": edit("gres.conf", "Count=8", "Count=9"),
    "another number of each GPU": several(
        lambda n: n.edit(
            "gres.conf",
            "Name=shard Count=8",
            f"Name=shard Count=3 File={n.root}/dev0\nName=shard Count=4 File={n.root}/dev1",
        ),
        edit("slurm.conf", "shard:8", "shard:7"),
    ),
    "an odd number of shards": several(
        edit("gres.conf", "Count=8", "Count=7"), edit("slurm.conf", "shard:8", "shard:7")
    ),
    "some of the GPUs that are detected": several(
        write("gres.conf", "AutoDetect=nvml\nName=shard Count=8\n"),
        edit("slurm.conf", "gpu:2", "gpu:1"),
    ),
    "plugins without their kinds": edit(
        "slurm.conf", "TaskPlugin=task/cgroup", "SelectType=cons_tres\nTaskPlugin=cgroup,affinity"
    ),
    "other words of a partition": edit(
        "slurm.conf", "Task", "PartitionName=p SelectTypeParameters=CR_Core\nTask"
    ),
    "a node that slurmd -Z has told slurmctld": several(
        edit("slurm.conf", f"NodeName={HOST},", "NodeName="),
        edit("gres.conf", f"{HOST},", ""),
        lambda n: n.asked.update(clustername="alpha"),
        lambda n: n.asked_nodes.update({socket.gethostname(): {"gres": "gpu:2,shard:8"}}),
    ),
    "included slurm.conf": several(
        lambda n: n.write("nodes.conf", n.slurm_conf()), write("slurm.conf", "Include nodes.conf\n")
    ),
    "continued lines and comments": edit(
        "slurm.conf", "GresTypes=gpu,shard", "GresTypes=\\\ngpu,shard  # both"
    ),
    "one of two GPUs, by its file": several(
        edit("gres.conf", "dev[0-1]", "dev1"), edit("slurm.conf", "gpu:2", "gpu:1")
    ),
    "shards that stand for the memory of their GPU": toml('[device]\nmem_per_shard = "25%"\n'),
    "memory that Slurm gives out": edit(
        "slurm.conf", "Task", "SelectTypeParameters=CR_CPU_Memory\nTask"
    ),
    "PluginDir of this Slurm": lambda n: put_plugins_of_slurm(n, VERSION),
    "types in both files": several(
        edit("gres.conf", "Cores=0-3", "Type=h200"), edit("slurm.conf", "gpu:2", "gpu:h200:2")
    ),
    "memory that no job passes over": several(
        set_memory_limit, write("cgroup.conf", "ConstrainDevices=yes\nConstrainRAMSpace=yes\n")
    ),
    "what slurmctld says goes first": several(
        edit("slurm.conf", "GresTypes=gpu,shard\n", ""),
        lambda n: n.asked.update(grestypes="gpu,shard"),
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_other_ways_to_be_in_order(node: Node, case: str) -> None:
    FINE[case](node)
    assert node.faults() == []


def slurmd_has(made: Node, *numbers: int) -> NodeGres:
    """What slurmd says: these device files, each with four shards, and nothing more of them."""
    return NodeGres(tuple(SlurmGpu(f"{made.root}/dev{n}", shards=4) for n in numbers))


def as_in_files(made: Node) -> list[dict[str, Any]]:
    return [{"index": n, "uuid": gpu["uuid"]} for n, gpu in enumerate(made.gpus)]


FAULTS = [
    fault("config", "[demon]").after(write("gpu-leased.toml", "[demon]\n")),
    fault("cgroup-dmem", "keeps each job to its shards' part of a GPU's memory").after(
        edit("cgroup.conf", "Constrain", "ConstrainDeviceMemory=yes\nConstrain")
    ),
    fault("defaults", "tq:30s is outside").after(toml('[limits]\nquantum_max = "5s"\n')),
    fault("driver", "Driver Not Loaded").after(
        sets(nvml=Silent("NVML does not start: Driver Not Loaded"))
    ),
    fault("gpus", "NVML shows no GPU").after(lambda n: n.gpus.clear()),
    fault("gpus", "GPU 1 of NVML cannot be used: NVML says: GPU is lost").after(
        lambda n: n.gpus.__setitem__(1, {"fault": "GPU is lost"})
    ),
    fault("gpu-modes", "GPU 1 of NVML: it lets only one process in").after(
        lambda n: n.gpus[1].update(exclusive=True)
    ),
    fault("gpu-modes", "GPU 0 of NVML: it is split by MIG").after(
        lambda n: n.gpus[0].update(mig=True)
    ),
    fault("daemon", "does not answer").after(
        sets(answer=NoAnswer("gpu-leased does not answer", "start it"))
    ),
    fault("daemon-version", "gpu-leased is of release 0.0.1, this gpu-leasectl of").after(
        says(version="0.0.1")
    ),
    fault("daemon-version", "gpu-leased is").after(says(wire_version=999)),
    fault("devices", "GPU 3 takes no new jobs: it is lost").after(
        says(devices=[{"index": 3, "fault": "it is lost"}])
    ),
    fault("nvml", "NVML does not answer the daemon: ").after(
        says(nvml_fault="NVML does not answer")
    ),
    fault("store", "the disk is full").after(says(store_fault="the disk is full")),
    fault("cluster", "jobs of beta come here and are refused: gpu-leased serves alpha").after(
        says(cluster={"name": "alpha", "refused": {"beta": 3}})
    ),
    fault("cluster", "gpu-leased serves the Slurm cluster alpha, ").after(
        edit("slurm.conf", "GresTypes", "ClusterName=Beta\nGresTypes")
    ),
    fault("tenant-socket", "there is no").after(drop_socket),
    fault("tenant-socket", "has mode 0600").after(
        lambda n: (n.root / "run" / "tenant.sock").chmod(0o600)
    ),
    fault("tenant-socket", "may not enter").after(lambda n: (n.root / "run").chmod(0o750)),
    fault("tenant-socket", "nobody listens").after(lambda n: n.tenant.close()),
    fault("tenant-socket", "is not a socket").after(
        drop_socket, lambda n: (n.root / "run" / "tenant.sock").touch()
    ),
    fault("daemon-version", "gpu-leased is of release None").after(
        sets(answer={"devices": [{}], "strays": {}})
    ),
    fault("interposer", "there is no interposer").after(lambda n: n.preload.unlink()),
    fault("interposer", "may not read").after(lambda n: n.preload.chmod(0o700)),
    fault("interposer", "may not read").after(lambda n: n.preload.parent.chmod(0o700)),
    fault("interposer", "libgone.so").after(need_a_missing_library),
    fault("interposer", "cannot be loaded").after(lambda n: n.preload.write_text("?")),
    fault("interposer-version", "speaks version 999").after(
        lambda n: interposer_of(n, __version__, 999)
    ),
    fault("slurm-conf", "there is no slurm.conf here").after(remove("slurm.conf")),
    fault("plugstack", "there is no").after(remove("plugstack.conf")),
    fault("plugstack", "has 2 lines").after(
        lambda n: n.write("plugstack.conf", f"optional {n.plugin} {n.arguments()}\n" * 2)
    ),
    fault("plugin-file", "jobs share without a lease").after(lambda n: n.plugin.unlink()),
    fault("plugin-release", "is of release 9.9").after(
        lambda n: make_library(n.plugin, plugin(VERSION), "gpu-lease plugin 9.9")
    ),
    fault("plugin-arguments", "the plugin connects to").after(
        edit("plugstack.conf", "run/admin.sock", "x/admin.sock")
    ),
    fault("several-nodes", "peers.port of this node is 0: jobs on several nodes fail here").after(
        edit("plugstack.conf", " lock_off", " several_nodes=yes lock_off")
    ),
    fault("node-gres", "has no Gres shard in slurm.conf").after(
        edit("slurm.conf", "Gres=gpu:2,shard:8", "Gres=gpu:2")
    ),
    fault("gres-conf", "stops at slurm.conf, without").after(remove("gres.conf")),
    fault("gres-conf", "no GPU has a device file").after(
        edit("gres.conf", f"NodeName={HOST}", "NodeName=another")
    ),
    fault("gres-files", "dev1, which is not there").after(lambda n: n.files[1].unlink()),
    fault("gres-count", "slurm.conf has 2 gpu, NVML shows 1").after(lambda n: n.gpus.pop()),
    fault("gres-order", "dev1, and jobs there run on /dev/nvidia0").after(
        write("cgroup.conf", ""), edit("gres.conf", "dev[0-1]", "dev[1,0]")
    ),
    fault("gres-conf", "shards are counted several times without File=").after(
        edit("gres.conf", "Count=8", "Count=6")
    ),
    fault("gres-count", "slurmd has 8 shard of 9, so slurmctld sends no jobs").after(
        lambda n: n.edit("gres.conf", "Count=8", f"Count=9 File={n.root}/dev[0-1]"),
        edit("slurm.conf", "shard:8", "shard:9"),
    ),
    fault("gres-files", "dev2, which is not there: slurmd does not start").after(
        lambda n: n.edit("gres.conf", "Count=8", f"Count=8 File={n.root}/dev[1-2]")
    ),
    fault("gres-conf", "stops at").after(sets(slurmd=NodeGres((), "Invalid GRES record for gpu"))),
    fault("gres-count", "slurmd has 1 gpu of 2 and 4 shard of 8").after(
        lambda n: setattr(n, "slurmd", slurmd_has(n, 0))
    ),
    fault("gres-whole", "have neither a type in slurm.conf nor Cores= in gres.conf").after(
        write("gres.conf", "AutoDetect=nvml\n"), lambda n: setattr(n, "slurmd", slurmd_has(n, 0, 1))
    ),
    fault("gres-order", "dev1, and gpu-leased has that GPU as 1").after(
        lambda n: setattr(n, "slurmd", slurmd_has(n, 1, 0)),
        lambda n: setattr(n, "answer", status() | {"devices": as_in_files(n)}),
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=named)
def test_faults_are_found(node: Node, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.spoil(node)
    finding = case.found(node.look())
    code = ctl.main(["--config", str(node.config), "check", "--json"])
    assert code == ExitStatus.REFUSED
    assert finding.as_dict() in json.loads(capsys.readouterr().out)


UNWRITTEN = {"job_id": 9, "job": "7_2", "since_s": 95.4, "why": "it has no row"}

MPS = {"why": None, "together": "user", "ended": 0, "faults": 0, "lost": ["7"]}
REFUSED = {"state": "refused", "why": "MPS has the channels", "processes": 1}
WARNINGS = [
    warning("daemon", "gpu-leased was not asked: it is not open to you").after(
        sets(answer=Refused("it is not open to you", "run as root"))
    ),
    warning("drained", "GPU 3 is drained").after(says(devices=[{"index": 3, "drain": "drained"}])),
    warning("strays", "processes use a leased GPU without a lease: 1").after(
        says(strays={"now": [{}]})
    ),
    warning(
        "time-slices", "jobs 7, 8, 9: their time slices are the driver's (1 of 2 processes)"
    ).after(says(tenants=[{"job": job, "clients": 2, "channels": REFUSED} for job in "789"])),
    warning("mps", "GPU 3 takes no new jobs, as MPS does not run there: it ended").after(
        says(devices=[{"index": 3, "mps": MPS | {"why": "it ended"}}])
    ),
    warning(
        "mps", "GPU 3: 2 faults of one process ended the work of all under MPS; the last"
    ).after(says(devices=[{"index": 3, "mps": MPS | {"faults": 2}}])),
    warning(
        "usage", "accounting yet: job 7_2, which ended 95 s ago: it has no row; and 2 others"
    ).after(says(usage_waiting={"runs": 3, "first": [UNWRITTEN]})),
    warning("cluster", "does not know yet which Slurm cluster").after(
        says(cluster={"name": None, "refused": {}})
    ),
    warning("interposer-version", "is of release 9.9").after(
        lambda n: interposer_of(n, "9.9", lib.GL_VERSION)
    ),
    warning("interposer-version", "does not say its release").after(
        lambda n: make_library(n.preload, "")
    ),
    warning("plugstack", "sbatch and slurmd stop and nodes drain").after(
        edit("plugstack.conf", "optional", "required")
    ),
    warning("plugin-arguments", "tq_max, lock_off of the plugin's line differ").after(
        edit("plugstack.conf", "tq_max=10m lock_off=yes", "tq_max=9m lock_off=no")
    ),
    warning(
        "several-nodes", "does not say several_nodes=yes: jobs on several nodes are refused"
    ).after(toml("[peers]\nport = 6830\n")),
    warning(
        "requeues", "jobs are evicted up to 3 times, and MaxPreemptRequeue=2 of slurm.conf"
    ).after(
        toml('[classes]\nunhealthy = "evict"\n'),
        edit("slurm.conf", "GresTypes", "MaxPreemptRequeue=2\nGresTypes"),
    ),
    warning("cgroup-dmem", "limits.dmem is set: this kernel and driver cannot keep jobs").after(
        toml("[limits]\ndmem = true\n")
    ),
    warning(
        "mem-per-shard", "4 shards of GPU 0 stand for 128 MiB each, 512 MiB of the 1.0 GiB"
    ).after(toml('[device]\nmem_per_shard = "128MiB"\n')),
    warning("mem-per-shard", "a shard of GPU 0 stands for 2.0 GiB, and jobs may use 1.0 GiB").after(
        toml('[device]\nmem_per_shard = "2GiB"\n')
    ),
    warning("plugin-version", "cannot be told").after(sets(version=None)),
    warning("plugin-release", "does not say its release").after(
        lambda n: make_library(n.plugin, plugin(VERSION))
    ),
    warning("slurm-conf", "slurm.conf, line 1: ['1-x'] is not a list of numbers").after(
        edit("slurm.conf", "GresTypes", "NodeName=c[1-x]\nGresTypes")
    ),
    warning("gres-conf", "gres.conf, line 1: '/dev/x[1' has a bracket without its partner").after(
        edit("gres.conf", "AutoDetect=off", "AutoDetect=off Name=gpu File=/dev/x[1")
    ),
    warning("cgroup-conf", "cgroup.conf, line 1: 'hello' is not KEY=VALUE").after(
        edit("cgroup.conf", "Constrain", "hello\nConstrain")
    ),
    warning("plugstack", "plugstack.conf, line 1: 'hello' is not a line of a plugin").after(
        edit("plugstack.conf", "optional", "hello\noptional")
    ),
    warning("cgroup-devices", "a job can open GPUs that Slurm gave to others").after(
        write("cgroup.conf", "ConstrainDevices=no\n")
    ),
    warning("node", "this host is in no NodeName line").after(
        edit("slurm.conf", f"NodeName={HOST}", "NodeName=another")
    ),
    warning("accounting", "sacct shows no usage").after(
        edit("slurm.conf", "accounting_storage/slurmdbd", "accounting_storage/none")
    ),
]


@pytest.mark.parametrize("case", WARNINGS, ids=named)
def test_warnings_are_no_faults(node: Node, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.spoil(node)
    assert [f.id for f in node.look() if f.level == "fault"] == []
    case.found(node.findings)
    assert ctl.main(["--config", str(node.config), "check"]) == ExitStatus.DONE
    assert case.words.split()[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("regions", "level"),
    [
        ("nvidia/0000:3b:00/vidmem 9\nnvidia/0000:86:00/vidmem 9\n", "ok"),
        ("drm/0000:3B:00.0/vram 9\ndrm/0000:86:00.0/vram 9\n", "ok"),
        ("drm/0000:02:00.0/vram 9\n", "warning"),  # a GPU for the console
    ],
)
def test_the_kernel_s_cap_needs_regions_of_these_gpus(
    node: Node, monkeypatch: pytest.MonkeyPatch, regions: str, level: str
) -> None:
    file = node.root / "dmem.capacity"
    file.write_text(regions)
    monkeypatch.setattr(cgroups, "REGIONS", file)
    node.write("gpu-leased.toml", node.toml() + "[limits]\ndmem = true\n")
    for gpu, bus in zip(node.gpus, ("3B", "86")):
        gpu["pci"] = f"00000000:{bus}:00.0"
    node.look()
    assert node.found["cgroup-dmem"].level == level


def test_binding_that_cannot_be_loaded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "IMPORT", "import no_such_module")
    node.look()
    assert node.found["libslurm"].level == "warning"
    assert "No module named 'no_such_module'" in node.found["libslurm"].text


def test_an_interposer_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "START_S", 0.5)
    make_library(
        node.preload,
        "int pause(void); __attribute__((constructor)) static void hang(void) { pause(); }",
    )
    node.look()
    assert "a program with it takes longer than 0.5 s" in node.found["interposer"].text


def test_the_name_of_a_node_can_be_given(node: Node) -> None:
    node.edit("slurm.conf", f"NodeName={HOST},", "NodeName=renamed,")
    node.edit("gres.conf", f"NodeName={HOST},", "NodeName=renamed,")
    node.edit("gres.conf", f"NodeName={HOST} ", "NodeName=renamed ")
    assert node.faults("renamed") == []


def test_what_slurmd_may_detect_is_not_judged(node: Node) -> None:
    node.write("gres.conf", "AutoDetect=nvml\n")
    node.nvml = Silent("NVML does not start")
    node.look()
    assert node.found["gres-conf"].level == "warning"
    assert not {"gres-count", "gres-whole", "gres-order"} & node.found.keys()


def test_a_name_that_nobody_knows_is_not_asked_for_again(node: Node) -> None:
    node.look("n1.example.org")
    found = node.found["node"]
    assert found.text.startswith("n1.example.org is in no NodeName line")
    assert "--node" not in found.remedy


def test_a_node_of_slurmd_z_with_a_domain(node: Node) -> None:
    """Whether its name is given or is the host's."""
    name = "n1.example.org"
    node.asked["clustername"] = "alpha"
    node.asked_nodes[name] = {"gres": "gpu:2,shard:8"}
    node.edit("gres.conf", f"NodeName={HOST} ", f"NodeName={name} ")
    assert node.faults(name) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("gpu1", ["gpu1"]),
        ("gpu[1-3,7]-ib,login", ["gpu1-ib", "gpu2-ib", "gpu3-ib", "gpu7-ib", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
    ],
)
def test_hostlists_are_expanded(text: str, names: list[str]) -> None:
    assert hostlists.expand(text) == names


def test_gres_are_counted() -> None:
    assert gres_text.counts("gpu:a100:4(S:0-1),shard:32,license") == {
        **{"gpu": 4, "shard": 32, "license": 1}
    }
    assert gres_text.as_configured("gpu:a:1(S:0),gpu:b,shard:a:4(S:0),shard:b:4") == (
        "gpu:a:1,gpu:b:1,shard:8"
    )
    assert gres_text.as_configured("gpu:2(S:0)") == "gpu:2"
    assert gres_text.counts("gpu:a100,shard:no_consume:2K") == {"gpu": 1, "shard": 2048}


def test_a_node_is_found_by_its_host(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("NodeName=n[1-2] NodeHostname=a,b\nNodeName=n3\n")
    found = slurmconf.SlurmConf(path)
    found.read(path)
    assert [found.node_of(host) for host in ("a", "b.example.org", "n3", "c")] == [
        *("n1", "n2", "n3", None)
    ]


def test_numbers_of_libraries(tmp_path: Path) -> None:
    version = elf.number(PLUGIN, "plugin_version")
    assert version is not None
    assert version >> 16 >= 22
    assert elf.number(PLUGIN, "no_such_name") is None
    for size in (0, 5, 64, 4000):
        cut = tmp_path / "cut.so"
        cut.write_bytes(PLUGIN.read_bytes()[:size])
        assert elf.number(cut, "plugin_version") is None
    with pytest.raises(OSError, match="No such file"):
        elf.number(tmp_path / "none", "plugin_version")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_by_a_user_who_is_not_root(short_dir: Path) -> None:
    """It goes on past what that user may not look at."""
    (short_dir / "run").mkdir(mode=0o700)
    config = short_dir / "gpu-leased.toml"
    config.write_text(f'[daemon]\nruntime_dir = "{short_dir}/run"\n')
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = {f.id: f for f in check.run(config, None)}
            code = 0 if found["slurm-conf"] and found["interposer"] else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


COPIES = {"kept": True, "budget_bytes": 99 << 30, "taken_bytes": 0, "left_bytes": 9 << 30}


@pytest.mark.parametrize(("most", "level"), [(64 << 30, OK), (0, WARNING)])
def test_host_memory_made_ahead_is_named_with_its_limit(node: Node, most: int, level: str) -> None:
    node.answer = {"copies": COPIES | {"ahead_bytes": 3 << 30, "ahead_most_bytes": most}}
    node.look()
    found = node.found["copies-ahead"]
    assert found.level == level
    assert (found.remedy == "raise limits.swap_ahead") == (not most)
    assert not most or ("3.0 GiB" in found.text and "64.0 GiB" in found.text)


@pytest.mark.parametrize(
    ("told", "level"),
    [({}, OK), ({"kept": False, "ahead_bytes": 3 << 30, "ahead_most_bytes": 64 << 30}, WARNING)],
    ids=["older daemon", "no keeper"],
)
def test_nothing_is_said_to_be_ready(node: Node, told: dict[str, int], level: str) -> None:
    """Where no keeper runs, what is told is of when there was one."""
    node.answer = {"copies": COPIES | told}
    node.look()
    assert node.found["copies"].level == level
    assert not {"copies-ahead", "check"} & node.found.keys()


def test_gpus_shared_by_mps_are_in_order_and_their_jobs_are_no_warning(node: Node) -> None:
    job = {"job": "7", "clients": 2, "channels": REFUSED, "space": "mps"}
    node.answer = status() | {"devices": [{"index": 3, "mps": MPS}], "tenants": [job]}
    node.look()
    assert node.found["mps"].text.startswith("MPS runs on GPU 3; its server has the channel groups")
    assert (node.found["mps"].level, node.found["time-slices"].level) == ("ok", "ok")

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
from leased.cli.checks import cgroups, interposer, libslurm
from leased.cli.checks.finding import OK, WARNING
from leased.cli.exit_status import ExitStatus
from leased.gpus.nvml import Silent
from leased.slurm import gres_text, hostlists, slurmconf
from leased.slurm.node_gres import NodeGres, SlurmGpu
from tests.cli.check_node import (
    HOST,
    VERSION,
    Node,
    Spoil,
    make_library,
    node,
    plugin,
    several,
    status,
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
    "GPUs by AutoDetect": lambda n: n.write("gres.conf", "AutoDetect=nvml\nName=shard Count=8\n"),
    "shards by device file": lambda n: n.edit(
        "gres.conf", "Name=shard Count=8", f"Name=shard Count=8 File={n.root}/dev[0-1]"
    ),
    "no line of shards": lambda n: n.edit(
        "gres.conf", f"NodeName={HOST},other[1-3] Name=shard Count=8\n", ""
    ),
    "more in gres.conf than in slurm.conf": lambda n: n.edit("gres.conf", "Count=8", "Count=9"),
    "another number of each GPU": several(
        lambda n: n.edit(
            "gres.conf",
            "Name=shard Count=8",
            f"Name=shard Count=3 File={n.root}/dev0\nName=shard Count=4 File={n.root}/dev1",
        ),
        lambda n: n.edit("slurm.conf", "shard:8", "shard:7"),
    ),
    "an odd number of shards": several(
        lambda n: n.edit("gres.conf", "Count=8", "Count=7"),
        lambda n: n.edit("slurm.conf", "shard:8", "shard:7"),
    ),
    "some of the GPUs that are detected": several(
        lambda n: n.write("gres.conf", "AutoDetect=nvml\nName=shard Count=8\n"),
        lambda n: n.edit("slurm.conf", "gpu:2", "gpu:1"),
    ),
    "plugins without their kinds": lambda n: n.edit(
        "slurm.conf", "TaskPlugin=task/cgroup", "SelectType=cons_tres\nTaskPlugin=cgroup,affinity"
    ),
    "other words of a partition": lambda n: n.edit(
        "slurm.conf", "Task", "PartitionName=p SelectTypeParameters=CR_Core\nTask"
    ),
    "a node that slurmd -Z has told slurmctld": several(
        lambda n: n.edit("slurm.conf", f"NodeName={HOST},", "NodeName="),
        lambda n: n.edit("gres.conf", f"{HOST},", ""),
        lambda n: n.asked.update(clustername="alpha"),
        lambda n: n.asked_nodes.update({socket.gethostname(): {"gres": "gpu:2,shard:8"}}),
    ),
    "included slurm.conf": several(
        lambda n: n.write("nodes.conf", n.slurm_conf()),
        lambda n: n.write("slurm.conf", "Include nodes.conf\n"),
    ),
    "continued lines and comments": lambda n: n.edit(
        "slurm.conf", "GresTypes=gpu,shard", "GresTypes=\\\ngpu,shard  # both"
    ),
    "one of two GPUs, by its file": several(
        lambda n: n.edit("gres.conf", "dev[0-1]", "dev1"),
        lambda n: n.edit("slurm.conf", "gpu:2", "gpu:1"),
    ),
    "shards that stand for the memory of their GPU": lambda n: n.write(
        "gpu-leased.toml", n.toml() + '[device]\nmem_per_shard = "25%"\n'
    ),
    "what slurmctld says goes first": several(
        lambda n: n.edit("slurm.conf", "GresTypes=gpu,shard\n", ""),
        lambda n: n.asked.update(grestypes="gpu,shard"),
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_other_ways_to_be_in_order(node: Node, case: str) -> None:
    FINE[case](node)
    assert [f for f in node.look() if f.level != "ok"] == []


def slurmd_has(made: Node, *numbers: int) -> NodeGres:
    """What slurmd says: these device files, each with four shards, and nothing more of them."""
    return NodeGres(tuple(SlurmGpu(f"{made.root}/dev{n}", shards=4) for n in numbers))


def as_in_files(made: Node) -> list[dict[str, Any]]:
    return [{"index": n, "uuid": gpu["uuid"]} for n, gpu in enumerate(made.gpus)]


FAULTS: dict[str, tuple[Spoil, str, str]] = {
    # case: what is spoilt, the finding's id, a part of its text
    "configuration": (lambda n: n.write("gpu-leased.toml", "[demon]\n"), "config", "[demon]"),
    "Slurm keeps jobs to their shards' memory": (
        lambda n: n.edit("cgroup.conf", "Constrain", "ConstrainDeviceMemory=yes\nConstrain"),
        *("cgroup-dmem", "keeps each job to its shards' part of a GPU's memory"),
    ),
    "defaults": (
        lambda n: n.write("gpu-leased.toml", n.toml() + '[limits]\nquantum_max = "5s"\n'),
        *("defaults", "tq:30s is outside"),
    ),
    "driver": (
        lambda n: setattr(n, "nvml", Silent("NVML does not start: Driver Not Loaded")),
        *("driver", "Driver Not Loaded"),
    ),
    "no GPU": (lambda n: n.gpus.clear(), "gpus", "NVML shows no GPU"),
    "a GPU that is lost": (
        lambda n: n.gpus.__setitem__(1, {"fault": "GPU is lost"}),
        *("gpus", "GPU 1 of NVML cannot be used: NVML says: GPU is lost"),
    ),
    "exclusive GPU": (
        lambda n: n.gpus[1].update(exclusive=True),
        *("gpu-modes", "GPU 1 of NVML: it lets only one process in"),
    ),
    "MIG": (
        lambda n: n.gpus[0].update(mig=True),
        *("gpu-modes", "GPU 0 of NVML: it is split by MIG"),
    ),
    "no daemon": (
        lambda n: setattr(n, "answer", NoAnswer("gpu-leased does not answer", "start it")),
        *("daemon", "does not answer"),
    ),
    "older daemon": (
        lambda n: n.answer.update(version="0.0.1"),  # type: ignore[union-attr]
        *("daemon-version", "gpu-leased is of release 0.0.1, this gpu-leasectl of"),
    ),
    "other protocol": (
        lambda n: n.answer.update(wire_version=999),  # type: ignore[union-attr]
        *("daemon-version", "gpu-leased is"),
    ),
    "a device of the daemon's": (
        lambda n: n.answer.update(devices=[{"index": 3, "fault": "it is lost"}]),  # type: ignore[union-attr]
        *("devices", "GPU 3 takes no new jobs: it is lost"),
    ),
    "NVML and the daemon": (
        lambda n: n.answer.update(nvml_fault="NVML does not answer"),  # type: ignore[union-attr]
        *("nvml", "NVML does not answer the daemon: "),
    ),
    "store": (
        lambda n: n.answer.update(store_fault="the disk is full"),  # type: ignore[union-attr]
        *("store", "the disk is full"),
    ),
    "jobs of another cluster": (
        lambda n: n.answer["cluster"].update(refused={"beta": 3}),  # type: ignore[index]
        *("cluster", "jobs of beta come here and are refused: gpu-leased serves alpha"),
    ),
    "another cluster's daemon": (
        lambda n: n.edit("slurm.conf", "GresTypes", "ClusterName=Beta\nGresTypes"),
        *("cluster", "gpu-leased serves the Slurm cluster alpha, "),
    ),
    "no tenant.sock": (drop_socket, "tenant-socket", "there is no"),
    "closed tenant.sock": (
        lambda n: (n.root / "run" / "tenant.sock").chmod(0o600),
        *("tenant-socket", "has mode 0600"),
    ),
    "closed folder": (lambda n: (n.root / "run").chmod(0o750), "tenant-socket", "may not enter"),
    "nobody listens": (lambda n: n.tenant.close(), "tenant-socket", "nobody listens"),
    "a file for a socket": (
        several(drop_socket, lambda n: (n.root / "run" / "tenant.sock").touch()),
        *("tenant-socket", "is not a socket"),
    ),
    "odd daemon": (
        lambda n: setattr(n, "answer", {"devices": [{}], "strays": {}}),
        *("daemon-version", "gpu-leased is of release None"),
    ),
    "no interposer": (lambda n: n.preload.unlink(), "interposer", "there is no interposer"),
    "closed interposer": (lambda n: n.preload.chmod(0o700), "interposer", "may not read"),
    "closed folder of it": (lambda n: n.preload.parent.chmod(0o700), "interposer", "may not read"),
    "missing library": (need_a_missing_library, "interposer", "libgone.so"),
    "no library at all": (lambda n: n.preload.write_text("?"), "interposer", "cannot be loaded"),
    "interposer's protocol": (
        lambda n: interposer_of(n, __version__, 999),
        *("interposer-version", "speaks version 999"),
    ),
    "no slurm.conf": (
        lambda n: (n.root / "etc" / "slurm.conf").unlink(),
        *("slurm-conf", "there is no slurm.conf here"),
    ),
    "no plugstack.conf": (
        lambda n: (n.root / "etc" / "plugstack.conf").unlink(),
        *("plugstack", "there is no"),
    ),
    "no line": (
        lambda n: n.write("plugstack.conf", f"# optional {n.plugin}\n"),
        *("plugstack", "has no line"),
    ),
    "two lines": (
        lambda n: n.write("plugstack.conf", f"optional {n.plugin} {n.arguments()}\n" * 2),
        *("plugstack", "has 2 lines"),
    ),
    "no plugin": (lambda n: n.plugin.unlink(), "plugin-file", "jobs share without a lease"),
    "plugin of another Slurm": (
        lambda n: make_library(n.plugin, plugin((24, 11, 0)), f"gpu-lease plugin {__version__}"),
        *("plugin-version", "is built for Slurm 24.11; installed here is 22.05"),
    ),
    "plugin of another release": (
        lambda n: make_library(n.plugin, plugin(VERSION), "gpu-lease plugin 9.9"),
        *("plugin-release", "is of release 9.9"),
    ),
    "plugin's socket": (
        lambda n: n.edit("plugstack.conf", "run/admin.sock", "x/admin.sock"),
        *("plugin-arguments", "the plugin connects to"),
    ),
    "several nodes, which the daemons do not serve": (
        lambda n: n.edit("plugstack.conf", " lock_off", " several_nodes=yes lock_off"),
        *("several-nodes", "peers.port of this node is 0: jobs on several nodes fail here"),
    ),
    "GresTypes": (
        lambda n: n.edit("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu"),
        *("gres-types", "lacks shard"),
    ),
    "no Gres": (
        lambda n: n.edit("slurm.conf", "Gres=gpu:2,shard:8", "Gres=gpu:2"),
        *("node-gres", "has no Gres shard in slurm.conf"),
    ),
    "no gres.conf": (
        lambda n: (n.root / "etc" / "gres.conf").unlink(),
        *("gres-conf", "stops at slurm.conf, without"),
    ),
    "gres.conf of others": (
        lambda n: n.edit("gres.conf", f"NodeName={HOST}", "NodeName=another"),
        *("gres-conf", "no GPU has a device file"),
    ),
    "device file": (lambda n: n.files[1].unlink(), "gres-files", "dev1, which is not there"),
    "number of GPUs": (lambda n: n.gpus.pop(), "gres-count", "slurm.conf has 2 gpu, NVML shows 1"),
    "a GPU that jobs do not run on": (
        several(
            lambda n: n.write("cgroup.conf", ""),
            lambda n: n.edit("gres.conf", "dev[0-1]", "dev[1,0]"),
        ),
        *("gres-order", "dev1, and jobs there run on /dev/nvidia0"),
    ),
    "number of files": (
        lambda n: n.edit("gres.conf", "dev[0-1]", "dev0"),
        *("gres-count", "slurmd has 1 gpu of 2, so slurmctld sends no jobs"),
    ),
    "number of shards": (
        lambda n: n.edit("gres.conf", "Count=8", "Count=6"),
        *("gres-conf", "shards are counted several times without File="),
    ),
    "shards that cannot be divided": (
        several(
            lambda n: n.edit("gres.conf", "Count=8", f"Count=9 File={n.root}/dev[0-1]"),
            lambda n: n.edit("slurm.conf", "shard:8", "shard:9"),
        ),
        *("gres-count", "slurmd has 8 shard of 9"),
    ),
    "shards of a GPU that is not there": (
        lambda n: n.edit("gres.conf", "Count=8", f"Count=8 File={n.root}/dev[1-2]"),
        *("gres-files", "dev2, which is not there: slurmd does not start"),
    ),
    "slurmd that stops": (
        lambda n: setattr(n, "slurmd", NodeGres((), "Invalid GRES record for gpu")),
        *("gres-conf", "stops at"),
    ),
    "fewer GPUs than in slurm.conf, says slurmd": (
        lambda n: setattr(n, "slurmd", slurmd_has(n, 0)),
        *("gres-count", "slurmd has 1 gpu of 2 and 4 shard of 8"),
    ),
    "types in gres.conf alone": (
        lambda n: n.edit("gres.conf", "Cores=0-3", "Type=h200"),
        *("gres-whole", "have neither a type in slurm.conf nor Cores= in gres.conf"),
    ),
    "what slurmd detects has neither type nor cores": (
        several(
            lambda n: n.write("gres.conf", "AutoDetect=nvml\n"),
            lambda n: setattr(n, "slurmd", slurmd_has(n, 0, 1)),
        ),
        *("gres-whole", "have neither a type in slurm.conf nor Cores= in gres.conf"),
    ),
    "a GPU that gpu-leased has for another": (
        several(
            lambda n: setattr(n, "slurmd", slurmd_has(n, 1, 0)),
            lambda n: setattr(n, "answer", status() | {"devices": as_in_files(n)}),
        ),
        *("gres-order", "dev1, and gpu-leased has that GPU as 1"),
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_found(node: Node, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, id_, words = FAULTS[case]
    spoil(node)
    node.look()
    finding = node.found[id_]
    assert finding.level == "fault"
    assert words in finding.text
    assert finding.remedy
    code = ctl.main(["--config", str(node.root / "etc" / "gpu-leased.toml"), "check", "--json"])
    assert code == ExitStatus.REFUSED
    assert finding.as_dict() in json.loads(capsys.readouterr().out)


UNWRITTEN = {"job_id": 9, "job": "7_2", "since_s": 95.4, "why": "it has no row"}

MPS = {"why": None, "together": "user", "ended": 0, "faults": 0, "lost": ["7"]}
REFUSED = {"state": "refused", "why": "MPS has the channels", "processes": 1}
WARNINGS: dict[str, tuple[Spoil, str, str]] = {
    "not asked": (
        lambda n: setattr(n, "answer", Refused("it is not open to you", "run as root")),
        *("daemon", "gpu-leased was not asked: it is not open to you"),
    ),
    "drained": (
        lambda n: setattr(n, "answer", status() | {"devices": [{"index": 3, "drain": "drained"}]}),
        *("drained", "GPU 3 is drained"),
    ),
    "strays": (
        lambda n: n.answer.update(strays={"now": [{}]}),  # type: ignore[union-attr]
        *("strays", "processes use a leased GPU without a lease: 1"),
    ),
    "slices that cannot be set": (
        lambda n: n.answer.update(  # type: ignore[union-attr]
            tenants=[{"job": job, "clients": 2, "channels": REFUSED} for job in "789"]
        ),
        *("time-slices", "jobs 7, 8, 9: their time slices are the driver's (1 of 2 processes)"),
    ),
    "MPS that does not run": (
        lambda n: setattr(
            n, "answer", status() | {"devices": [{"index": 3, "mps": MPS | {"why": "it ended"}}]}
        ),
        *("mps", "GPU 3 takes no new jobs, as MPS does not run there: it ended"),
    ),
    "work lost under MPS": (
        lambda n: setattr(
            n, "answer", status() | {"devices": [{"index": 3, "mps": MPS | {"faults": 2}}]}
        ),
        *("mps", "GPU 3: 2 faults of one process ended the work of all under MPS; the last"),
    ),
    "usage that waits": (
        lambda n: n.answer.update(usage_waiting={"runs": 3, "first": [UNWRITTEN]}),  # type: ignore[union-attr]
        "usage",
        "accounting yet: job 7_2, which ended 95 s ago: it has no row; and 2 others",
    ),
    "unknown cluster": (
        lambda n: n.answer["cluster"].update(name=None),  # type: ignore[index]
        *("cluster", "does not know yet which Slurm cluster"),
    ),
    "interposer's release": (
        lambda n: interposer_of(n, "9.9", lib.GL_VERSION),
        *("interposer-version", "is of release 9.9"),
    ),
    "interposer of no release": (
        lambda n: make_library(n.preload, ""),
        *("interposer-version", "does not say its release"),
    ),
    "required": (
        lambda n: n.edit("plugstack.conf", "optional", "required"),
        *("plugstack", "sbatch and slurmd stop and nodes drain"),
    ),
    "limits": (
        lambda n: n.edit("plugstack.conf", "tq_max=10m lock_off=yes", "tq_max=9m lock_off=no"),
        *("plugin-arguments", "tq_max, lock_off of the plugin's line differ"),
    ),
    "several nodes, which are refused at submission": (
        lambda n: n.write("gpu-leased.toml", n.toml() + "[peers]\nport = 6830\n"),
        *("several-nodes", "does not say several_nodes=yes: jobs on several nodes are refused"),
    ),
    "evictions that Slurm counts": (
        several(
            lambda n: n.write("gpu-leased.toml", n.toml() + '[classes]\nunhealthy = "evict"\n'),
            lambda n: n.edit("slurm.conf", "GresTypes", "MaxPreemptRequeue=2\nGresTypes"),
        ),
        *("requeues", "jobs are evicted up to 3 times, and MaxPreemptRequeue=2 of slurm.conf"),
    ),
    "a kernel without dmem": (
        lambda n: n.write("gpu-leased.toml", n.toml() + "[limits]\ndmem = true\n"),
        *("cgroup-dmem", "limits.dmem is set: this kernel and driver cannot keep jobs"),
    ),
    "shards that leave memory to nobody": (
        lambda n: n.write("gpu-leased.toml", n.toml() + '[device]\nmem_per_shard = "128MiB"\n'),
        *("mem-per-shard", "4 shards of GPU 0 stand for 128 MiB each, 512 MiB of the 1.0 GiB"),
    ),
    "a shard that stands for more than its GPU": (
        lambda n: n.write("gpu-leased.toml", n.toml() + '[device]\nmem_per_shard = "2GiB"\n'),
        *("mem-per-shard", "a shard of GPU 0 stands for 2.0 GiB, and jobs may use 1.0 GiB"),
    ),
    "unknown Slurm": (
        lambda n: setattr(n, "version", None),
        *("plugin-version", "cannot be told"),
    ),
    "plugin of no release": (
        lambda n: make_library(n.plugin, plugin(VERSION)),
        *("plugin-release", "does not say its release"),
    ),
    "an odd line of slurm.conf": (
        lambda n: n.edit("slurm.conf", "GresTypes", "NodeName=c[1-x]\nGresTypes"),
        *("slurm-conf", "slurm.conf, line 1: ['1-x'] is not a list of numbers"),
    ),
    "an odd line of gres.conf": (
        lambda n: n.edit("gres.conf", "AutoDetect=off", "AutoDetect=off Name=gpu File=/dev/x[1"),
        *("gres-conf", "gres.conf, line 1: '/dev/x[1' has a bracket without its partner"),
    ),
    "an odd line of cgroup.conf": (
        lambda n: n.edit("cgroup.conf", "Constrain", "hello\nConstrain"),
        *("cgroup-conf", "cgroup.conf, line 1: 'hello' is not KEY=VALUE"),
    ),
    "an odd line of plugstack.conf": (
        lambda n: n.edit("plugstack.conf", "optional", "hello\noptional"),
        *("plugstack", "plugstack.conf, line 1: 'hello' is not a line of a plugin"),
    ),
    "devices that are not constrained": (
        lambda n: n.write("cgroup.conf", "ConstrainDevices=no\n"),
        *("cgroup-devices", "a job can open GPUs that Slurm gave to others"),
    ),
    "another host": (
        lambda n: n.edit("slurm.conf", f"NodeName={HOST}", "NodeName=another"),
        *("node", "this host is in no NodeName line"),
    ),
    "accounting": (
        lambda n: n.edit("slurm.conf", "accounting_storage/slurmdbd", "accounting_storage/none"),
        *("accounting", "sacct shows no usage"),
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warnings_are_no_faults(node: Node, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, id_, words = WARNINGS[case]
    spoil(node)
    assert [f.id for f in node.look() if f.level == "fault"] == []
    (found,) = [f for f in node.findings if f.id == id_ and f.level == "warning"]
    assert words in found.text
    assert found.remedy
    path = node.root / "etc" / "gpu-leased.toml"
    assert ctl.main(["--config", str(path), "check"]) == ExitStatus.DONE
    assert words.split()[0] in capsys.readouterr().out


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
    monkeypatch.setattr(libslurm, "IMPORT", "import no_such_module")
    node.look()
    assert node.found["libslurm"].level == "warning"
    assert "No module named 'no_such_module'" in node.found["libslurm"].text


def test_an_interposer_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interposer, "START_S", 0.5)
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
    path = node.root / "etc" / "gpu-leased.toml"
    findings = check.run(path, None, "renamed")
    assert [f for f in findings if f.level != "ok"] == []


def test_what_slurmd_may_detect_is_not_judged(node: Node) -> None:
    node.write("gres.conf", "AutoDetect=nvml\n")
    node.nvml = Silent("NVML does not start")
    node.look()
    assert node.found["gres-conf"].level == "warning"
    assert not {"gres-count", "gres-whole", "gres-order"} & node.found.keys()


def test_a_name_that_nobody_knows_is_not_asked_for_again(node: Node) -> None:
    path = node.root / "etc" / "gpu-leased.toml"
    (found,) = [f for f in check.run(path, None, "n1.example.org") if f.id == "node"]
    assert found.text.startswith("n1.example.org is in no NodeName line")
    assert "--node" not in found.remedy


def test_a_node_of_slurmd_z_with_a_domain(node: Node) -> None:
    """Whether its name is given or is the host's."""
    name = "n1.example.org"
    node.asked["clustername"] = "alpha"
    node.asked_nodes[name] = {"gres": "gpu:2,shard:8"}
    node.edit("gres.conf", f"NodeName={HOST} ", f"NodeName={name} ")
    found = check.run(node.root / "etc" / "gpu-leased.toml", None, name)
    assert [f for f in found if f.level != "ok"] == []


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


@pytest.mark.parametrize(("most", "level"), [(64 << 30, OK), (0, WARNING)])
def test_host_memory_made_ahead_is_named_with_its_limit(node: Node, most: int, level: str) -> None:
    copies = {"kept": True, "budget_bytes": 99 << 30, "taken_bytes": 0, "left_bytes": 9 << 30}
    node.answer = {"copies": copies | {"ahead_bytes": 3 << 30, "ahead_most_bytes": most}}
    node.look()
    found = node.found["copies-ahead"]
    assert found.level == level
    assert (found.remedy == "raise limits.swap_ahead") == (not most)
    assert not most or ("3.0 GiB" in found.text and "64.0 GiB" in found.text)


def test_an_older_daemon_makes_none_ahead(node: Node) -> None:
    copies = {"kept": True, "budget_bytes": 99 << 30, "taken_bytes": 0, "left_bytes": 9 << 30}
    node.answer = {"copies": copies}
    node.look()
    assert "copies" in node.found
    assert "copies-ahead" not in node.found


def test_without_a_keeper_nothing_is_said_to_be_ready(node: Node) -> None:
    """What is told then is of when there was one."""
    copies = {"kept": False, "budget_bytes": 99 << 30, "taken_bytes": 0, "left_bytes": 9 << 30}
    node.answer = {"copies": copies | {"ahead_bytes": 3 << 30, "ahead_most_bytes": 64 << 30}}
    node.look()
    assert node.found["copies"].level == WARNING
    assert "copies-ahead" not in node.found


def test_gpus_shared_by_mps_are_in_order_and_their_jobs_are_no_warning(node: Node) -> None:
    job = {"job": "7", "clients": 2, "channels": REFUSED, "space": "mps"}
    node.answer = status() | {"devices": [{"index": 3, "mps": MPS}], "tenants": [job]}
    node.look()
    assert node.found["mps"].text.startswith("MPS runs on GPU 3; its server has the channel groups")
    assert (node.found["mps"].level, node.found["time-slices"].level) == ("ok", "ok")

"""gpu-leasectl check: mistakes of a site's Slurm, on a node and on the host of slurmctld."""

from __future__ import annotations

import json
import shutil

import pytest

from leased import __version__
from leased.cli import check, ctl
from leased.cli.checks.finding import Finding
from leased.cli.exit_status import ExitStatus
from tests.cli.check_node import HOST, Node, Spoil, make_library, node, plugin, several
from tests.conftest import ROOT

__all__ = ["node"]
CONSTRAINED = "ConstrainDevices=yes\nConstrainRAMSpace=yes\n"
SHIPPED = ROOT / "slurm-conf"


def set_memory_limit(made: Node) -> None:
    made.edit("slurm.conf", "CPUs=4", "CPUs=4 RealMemory=4000 MemSpecLimit=1000")


def put_plugins_of_slurm(made: Node, version: tuple[int, int, int]) -> None:
    make_library(made.root / "lib" / "select_cons_tres.so", plugin(version))
    made.edit("slurm.conf", "GresTypes", f"PluginDir={made.root}/lib\nGresTypes")


MISTAKES: dict[str, tuple[Spoil, str, str, str]] = {
    "GPUs without a description": (
        lambda n: n.edit("gres.conf", "Cores=0-3 ", ""),
        *("gres-whole", "fault", "gives out GPUs whole while shards of them are in use"),
    ),
    "types in gres.conf alone": (
        lambda n: n.edit("gres.conf", "Cores=0-3", "Type=h200"),
        *("gres-whole", "fault", "neither a type in slurm.conf nor Cores= in gres.conf"),
    ),
    "select/linear": (
        lambda n: n.edit("slurm.conf", "GresTypes", "SelectType=select/linear\nGresTypes"),
        *("select-type", "fault", "SelectType is select/linear, which gives out no shards"),
    ),
    "no memory is given out": (
        lambda n: n.edit("slurm.conf", "GresTypes", "SelectTypeParameters=CR_Core\nGresTypes"),
        *("select-memory", "warning", "CR_Core gives each job all memory of its node"),
    ),
    "no shards in accounting": (
        lambda n: n.edit("slurm.conf", "TRES=gres/gpu,gres/shard", "TRES=gres/gpu"),
        *("accounting-tres", "warning", "AccountingStorageTRES lacks gres/shard"),
    ),
    "nothing in accounting": (
        lambda n: n.edit("slurm.conf", "AccountingStorageTRES=gres/gpu,gres/shard\n", ""),
        *("accounting-tres", "warning", "lacks gres/gpu and gres/shard"),
    ),
    "tasks in no cgroup": (
        lambda n: n.edit("slurm.conf", "task/cgroup", "task/affinity"),
        *("task-plugin", "warning", "TaskPlugin is task/affinity, so cgroup.conf keeps no job"),
    ),
    "no cgroup.conf": (
        lambda n: (n.root / "etc" / "cgroup.conf").unlink(),
        *("cgroup-devices", "warning", "a job can open GPUs that Slurm gave to others"),
    ),
    "memory that jobs pass over": (
        set_memory_limit,
        *("cgroup-memory", "warning", "jobs may use the memory that MemSpecLimit=1000 keeps free"),
    ),
    "PluginDir of another Slurm": (
        lambda n: put_plugins_of_slurm(n, (24, 11, 0)),
        *("plugin-dir", "fault", "a PluginDir, are of Slurm 24.11; installed here is 22.05"),
    ),
    "PluginDir that is gone": (
        lambda n: n.edit("slurm.conf", "GresTypes", "PluginDir=/nonexistent\nGresTypes"),
        *("plugin-dir", "fault", "PluginDir is /nonexistent, which is not there"),
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.parametrize("place", ["node", "controller"])
def test_a_mistake_is_found_in_both_places(node: Node, case: str, place: str) -> None:
    spoil, id_, level, words = MISTAKES[case]
    spoil(node)
    found = node.look() if place == "node" else on_controller(node)
    if place == "controller" and case == "memory that jobs pass over":
        return  # which node would it be?
    (finding,) = [finding for finding in found if finding.id == id_]
    assert finding.level == level
    assert words in finding.text
    assert finding.remedy


@pytest.mark.parametrize(("micro", "level"), [(4, "fault"), (5, "ok")])
def test_gpus_need_no_description_from_23_11_5_on(node: Node, micro: int, level: str) -> None:
    node.version = (23, 11, micro)
    node.edit("gres.conf", "Cores=0-3 ", "")
    node.look()
    assert node.found["gres-whole"].level == level


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n.edit("slurm.conf", "Task", "SelectTypeParameters=CR_CPU_Memory\nTask"),
        lambda n: put_plugins_of_slurm(n, (22, 5, 8)),
        several(
            lambda n: n.edit("gres.conf", "Cores=0-3", "Type=h200"),
            lambda n: n.edit("slurm.conf", "gpu:2", "gpu:h200:2"),
        ),
        several(set_memory_limit, lambda n: n.write("cgroup.conf", CONSTRAINED)),
    ],
)
def test_other_ways_to_be_in_order(node: Node, change: Spoil) -> None:
    change(node)
    assert [finding for finding in node.look() if finding.level != "ok"] == []


PROLOGS = {
    "echo export LD_PRELOAD=/lib/x.so": "fault",
    'echo "export LD_PRELOAD=/lib/x.so"': "fault",
    "printf 'export LD_PRELOAD=%s\\n' /lib/x.so": "fault",
    "echo 'export LD_PRELOAD=/lib/x.so:$LD_PRELOAD'": "fault",
    "echo unset LD_PRELOAD": "fault",
    'print("export LD_PRELOAD=/lib/x.so")': "fault",
    '[ "$HOSTNAME" != n1 ] || echo export LD_PRELOAD=/lib/x.so': "warning",
    "cat <<EOF\nexport LD_PRELOAD=/lib/x.so\nEOF": "warning",
    "printf 'export %s=%s\\n' LD_PRELOAD /lib/x.so": "warning",
    "name=LD_PRELOAD\necho export $name=/lib/x.so": "warning",
    "was=$LD_PRELOAD\necho export LD_PRELOAD=/lib/x.so:$was": "warning",
    "was = os.getenv('LD_PRELOAD')\nprint('export LD_PRELOAD=/lib/x.so:' + was)": "warning",
    'case "$LD_PRELOAD" in *x*) env -u LD_PRELOAD id; LD_PRELOAD= id;; esac': "ok",
    "echo export LD_PRELOAD=/lib/x.so:$LD_PRELOAD": "ok",
    'echo "export LD_PRELOAD=/lib/x.so${LD_PRELOAD:+:$LD_PRELOAD}"': "ok",
    "printf 'export LD_PRELOAD=%s:%s\\n' /lib/x.so \"$LD_PRELOAD\"": "ok",
    "print('export LD_PRELOAD=/lib/x.so:' + os.environ['LD_PRELOAD'])": "ok",
    "# echo export LD_PRELOAD=/lib/x.so": "ok",
    "echo export OMP_NUM_THREADS=1": "ok",
}


@pytest.mark.parametrize("line", PROLOGS)
def test_a_task_prolog_that_prints_another_ld_preload(node: Node, line: str) -> None:
    node.write("prolog.sh", f"#!/bin/sh\n{line}\n")
    node.edit("slurm.conf", "GresTypes", f"TaskProlog={node.root}/etc/prolog.sh\nGresTypes")
    node.look()
    found = node.found["task-prolog"]
    assert (found.level, bool(found.remedy)) == (PROLOGS[line], PROLOGS[line] != "ok")


def test_a_task_prolog_that_is_not_there(node: Node) -> None:
    node.edit("slurm.conf", "GresTypes", "TaskProlog=/nonexistent\nGresTypes")
    node.look()
    assert "/nonexistent" in node.found["files"].text


def put_scripts(made: Node) -> None:
    """As an installation and its administrator leave them."""
    text = (SHIPPED / "gpu_share.lua").read_text().replace("@VERSION@", __version__)
    made.write("gpu_share.lua", text)
    shutil.copy(SHIPPED / "job_submit.lua", made.root / "etc")
    made.edit("slurm.conf", "GresTypes", "JobSubmitPlugins=lua\nGresTypes")


def on_controller(made: Node) -> list[Finding]:
    """What is found where slurmctld runs and nothing of a node is."""
    if "JobSubmit" not in (made.root / "etc" / "slurm.conf").read_text():
        put_scripts(made)
    (made.root / "run" / "tenant.sock").unlink(missing_ok=True)
    made.preload.unlink(missing_ok=True)
    return check.run(made.root / "etc" / "gpu-leased.toml", None, controller=True)


def test_a_controller_in_order(node: Node) -> None:
    found = on_controller(node)
    assert [finding for finding in found if finding.level != "ok"] == []
    ids = {finding.id for finding in found}
    assert {"role", "job-submit", "node-gres", "gres-count"} <= ids
    assert not {"driver", "daemon", "tenant-socket", "interposer", "libslurm"} & ids


CONTROLLERS: dict[str, tuple[Spoil, str, str, str]] = {
    "job_submit is off": (
        lambda n: n.edit("slurm.conf", "JobSubmitPlugins=lua\n", "JobSubmitPlugins=defaults\n"),
        *("job-submit", "warning", "JobSubmitPlugins of slurm.conf lacks lua"),
    ),
    "no script": (
        lambda n: (n.root / "etc" / "job_submit.lua").unlink(),
        *("job-submit", "fault", "which JobSubmitPlugins=lua needs"),
    ),
    "a script of the site's": (
        lambda n: n.write("job_submit.lua", "return slurm.SUCCESS\n"),
        *("job-submit", "warning", "does not ask gpu_share.lua"),
    ),
    "no rules": (
        lambda n: (n.root / "etc" / "gpu_share.lua").unlink(),
        *("job-submit", "warning", "which job_submit.lua asks"),
    ),
    "rules of another release": (
        lambda n: n.edit("gpu_share.lua", f'"{__version__}"', '"0.0.9"'),
        *(
            "job-submit",
            "warning",
            f"gpu_share.lua is of release 0.0.9, this gpu-leasectl of {__version__}",
        ),
    ),
    "rules of no release": (
        lambda n: n.write("gpu_share.lua", "return {}\n"),
        *("job-submit", "warning", "is of release unknown"),
    ),
    "no type": (
        lambda n: n.edit("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu"),
        *("gres-types", "fault", "GresTypes of slurm.conf lacks shard"),
    ),
    "no shards": (
        lambda n: n.edit("slurm.conf", "Gres=gpu:2,shard:8", "Gres=gpu:2"),
        *("node-gres", "fault", "no node of slurm.conf has shards"),
    ),
    "other shards in gres.conf": (
        lambda n: n.edit("gres.conf", "Count=8", "Count=6"),
        *("gres-count", "fault", "has Gres=gpu:2,shard:8, and "),
    ),
    "fewer GPUs in gres.conf": (
        lambda n: n.edit("gres.conf", "dev[0-1]", "dev0"),
        *("gres-count", "fault", "slurmd has 1 gpu of 2"),
    ),
    "a line without its plugin": (
        lambda n: n.plugin.unlink(),
        *("plugin-file", "warning", "jobs that are submitted on this host cannot use --gpu-share"),
    ),
    "no line": (
        lambda n: n.write("plugstack.conf", "# nothing\n"),
        *("plugstack", "fault", "has no line for gpu_share.so"),
    ),
    "a plugin of another Slurm": (
        lambda n: make_library(n.plugin, plugin((24, 11, 0)), f"gpu-lease plugin {__version__}"),
        *("plugin-version", "fault", "is built for Slurm 24.11; installed here is 22.05"),
    ),
}


@pytest.mark.parametrize("case", CONTROLLERS)
def test_mistakes_on_the_controller(node: Node, case: str) -> None:
    spoil, id_, level, words = CONTROLLERS[case]
    put_scripts(node)
    spoil(node)
    (found,) = [finding for finding in on_controller(node) if finding.id == id_]
    assert (found.level, bool(found.remedy)) == (level, True)
    assert words in found.text


def other_nodes(made: Node, controller: str) -> None:
    """slurmctld is to run there, and this host is no node."""
    made.edit("slurm.conf", f"NodeName={HOST},other[1-3]", "NodeName=other[1-3]")
    hosts = f"SlurmctldHost=spare\nSlurmctldHost={controller}"
    made.edit("slurm.conf", "GresTypes", f"{hosts}\nGresTypes")
    made.write("gres.conf", "Name=gpu Cores=0 File=/dev/nvidia[0-1]\nName=shard Count=8\n")


def test_the_controller_is_found_out(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    put_scripts(node)
    other_nodes(node, f"{HOST}.cluster.example(10.0.0.1)")
    node.answer = OSError()  # nobody is asked
    path = str(node.root / "etc" / "gpu-leased.toml")
    assert ctl.main(["--config", path, "check", "--json"]) == ExitStatus.DONE
    assert json.loads(capsys.readouterr().out)[0]["id"] == "role"


def test_another_host_is_no_controller(node: Node) -> None:
    other_nodes(node, "elsewhere")
    ids = {finding.id for finding in node.look()}
    assert "daemon" in ids
    assert not {"role", "job-submit"} & ids


def test_a_node_that_is_the_controller_too(node: Node) -> None:
    put_scripts(node)
    node.edit("slurm.conf", "GresTypes", f"SlurmctldHost={HOST}\nGresTypes")
    assert [finding for finding in node.look() if finding.level != "ok"] == []
    assert {"daemon", "job-submit"} <= node.found.keys()


def test_the_controller_as_slurmctld_names_it(node: Node) -> None:
    node.asked = {"slurmctldhost[0]": f"{HOST}(127.0.0.1)"}
    put_scripts(node)
    node.look()
    assert "job-submit" in node.found


def test_nodes_of_slurmd_z_are_the_controllers_too(node: Node) -> None:
    node.edit("slurm.conf", "Gres=gpu:2,shard:8", "")
    node.asked_nodes["n9"] = {"gres": "gpu:2,shard:8"}
    node.write("gres.conf", "Name=gpu Cores=0 File=/dev/nvidia[0-1]\n")
    found = {finding.id: finding for finding in on_controller(node)}
    assert found["node-gres"].text == "1 of 5 nodes have shards"
    assert found["gres-count"].level == "ok"


def test_a_controller_without_slurm_conf_has_one_fault(node: Node) -> None:
    (node.root / "etc" / "slurm.conf").unlink()
    found = check.run(node.root / "etc" / "gpu-leased.toml", None, controller=True)
    (fault,) = [finding for finding in found if finding.level == "fault"]
    assert fault.id == "slurm-conf"

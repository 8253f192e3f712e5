"""gpu-leasectl check: mistakes of a site's Slurm, on a node and on the host of slurmctld."""

from __future__ import annotations

import json
import shutil

import pytest

from leased import __version__
from leased.cli import ctl
from leased.cli.checks.finding import Finding
from leased.cli.subcommand import ExitStatus
from tests.cli.check_node import (
    HOST,
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
    set_memory_limit,
    sets,
    warning,
    write,
)
from tests.conftest import ROOT

__all__ = ["node"]
SHIPPED = ROOT / "slurm-conf"


MISTAKES = [
    fault("gres-types", "GresTypes of slurm.conf lacks shard").after(
        edit("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu")
    ),
    fault("gres-count", "slurmd has 1 gpu of 2").after(edit("gres.conf", "dev[0-1]", "dev0")),
    fault("plugstack", "has no line for gpu_share.so").after(
        write("plugstack.conf", "# optional gpu_share.so\n")
    ),
    fault("plugin-version", "is built for Slurm 24.11; installed here is 22.05").after(
        lambda n: make_library(n.plugin, plugin((24, 11, 0)), f"gpu-lease plugin {__version__}")
    ),
    fault("gres-whole", "gives out GPUs whole while shards of them are in use").after(
        edit("gres.conf", "Cores=0-3 ", "")
    ),
    fault("gres-whole", "neither a type in slurm.conf nor Cores= in gres.conf").after(
        edit("gres.conf", "Cores=0-3", "Type=h200")
    ),
    fault("select-type", "SelectType is select/linear, which gives out no shards").after(
        edit("slurm.conf", "GresTypes", "SelectType=select/linear\nGresTypes")
    ),
    warning("select-memory", "CR_Core gives each job all memory of its node").after(
        edit("slurm.conf", "GresTypes", "SelectTypeParameters=CR_Core\nGresTypes")
    ),
    warning("accounting-tres", "AccountingStorageTRES lacks gres/shard").after(
        edit("slurm.conf", "TRES=gres/gpu,gres/shard", "TRES=gres/gpu")
    ),
    warning("accounting-tres", "lacks gres/gpu and gres/shard").after(
        edit("slurm.conf", "AccountingStorageTRES=gres/gpu,gres/shard\n", "")
    ),
    warning("task-plugin", "TaskPlugin is task/affinity, so cgroup.conf keeps no job").after(
        edit("slurm.conf", "task/cgroup", "task/affinity")
    ),
    warning("cgroup-devices", "a job can open GPUs that Slurm gave to others").after(
        remove("cgroup.conf")
    ),
    warning("cgroup-memory", "jobs may use the memory that MemSpecLimit=1000 keeps free").after(
        set_memory_limit
    ),
    fault("plugin-dir", "a PluginDir, are of Slurm 24.11; installed here is 22.05").after(
        lambda n: put_plugins_of_slurm(n, (24, 11, 0))
    ),
    fault("plugin-dir", "PluginDir is /nonexistent, which is not there").after(
        edit("slurm.conf", "GresTypes", "PluginDir=/nonexistent\nGresTypes")
    ),
]


@pytest.mark.parametrize("case", MISTAKES, ids=named)
@pytest.mark.parametrize("place", ["node", "controller"])
def test_a_mistake_is_found_in_both_places(node: Node, case: Case, place: str) -> None:
    case.spoil(node)
    found = node.look() if place == "node" else on_controller(node)
    if place == "node" or case.id != "cgroup-memory":  # which node would it be?
        case.found(found)


@pytest.mark.parametrize(("micro", "level"), [(4, "fault"), (5, "ok")])
def test_gpus_need_no_description_from_23_11_5_on(node: Node, micro: int, level: str) -> None:
    node.version = (23, 11, micro)
    node.edit("gres.conf", "Cores=0-3 ", "")
    node.look()
    assert node.found["gres-whole"].level == level


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
    return made.look(controller=True)


def test_a_controller_in_order(node: Node) -> None:
    found = on_controller(node)
    assert [finding for finding in found if finding.level != "ok"] == []
    ids = {finding.id for finding in found}
    assert {"role", "job-submit", "node-gres", "gres-count"} <= ids
    assert not {"driver", "daemon", "tenant-socket", "interposer", "libslurm"} & ids


CONTROLLERS = [
    warning("job-submit", "JobSubmitPlugins of slurm.conf lacks lua").after(
        edit("slurm.conf", "JobSubmitPlugins=lua\n", "JobSubmitPlugins=defaults\n")
    ),
    fault("job-submit", "which JobSubmitPlugins=lua needs").after(remove("job_submit.lua")),
    warning("job-submit", "does not ask gpu_share.lua").after(
        write("job_submit.lua", "return slurm.SUCCESS\n")
    ),
    warning("job-submit", "which job_submit.lua asks").after(remove("gpu_share.lua")),
    warning(
        "job-submit", f"gpu_share.lua is of release 0.0.9, this gpu-leasectl of {__version__}"
    ).after(edit("gpu_share.lua", f'"{__version__}"', '"0.0.9"')),
    warning("job-submit", "is of release unknown").after(write("gpu_share.lua", "return {}\n")),
    fault("node-gres", "no node of slurm.conf has shards").after(
        edit("slurm.conf", "Gres=gpu:2,shard:8", "Gres=gpu:2")
    ),
    fault("gres-count", "has Gres=gpu:2,shard:8, and ").after(
        edit("gres.conf", "Count=8", "Count=6")
    ),
    warning("plugin-file", "jobs that are submitted on this host cannot use --gpu-share").after(
        lambda n: n.plugin.unlink()
    ),
]


@pytest.mark.parametrize("case", CONTROLLERS, ids=named)
def test_mistakes_on_the_controller(node: Node, case: Case) -> None:
    put_scripts(node)
    case.spoil(node)
    case.found(on_controller(node))


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
    assert ctl.main(["--config", str(node.config), "check", "--json"]) == ExitStatus.DONE
    assert json.loads(capsys.readouterr().out)[0]["id"] == "role"


def test_another_host_is_no_controller(node: Node) -> None:
    other_nodes(node, "elsewhere")
    ids = {finding.id for finding in node.look()}
    assert "daemon" in ids
    assert not {"role", "job-submit"} & ids


@pytest.mark.parametrize(
    "says_it",
    [
        edit("slurm.conf", "GresTypes", f"SlurmctldHost={HOST}\nGresTypes"),
        sets(asked={"slurmctldhost[0]": f"{HOST}(127.0.0.1)"}),
    ],
)
def test_a_node_that_is_the_controller_too(node: Node, says_it: Spoil) -> None:
    put_scripts(node)
    says_it(node)
    assert node.faults() == []
    assert {"daemon", "job-submit"} <= node.found.keys()


def test_nodes_of_slurmd_z_are_the_controllers_too(node: Node) -> None:
    node.edit("slurm.conf", "Gres=gpu:2,shard:8", "")
    node.asked_nodes["n9"] = {"gres": "gpu:2,shard:8"}
    node.write("gres.conf", "Name=gpu Cores=0 File=/dev/nvidia[0-1]\n")
    found = {finding.id: finding for finding in on_controller(node)}
    assert found["node-gres"].text == "1 of 5 nodes have shards"
    assert found["gres-count"].level == "ok"


def test_a_controller_without_slurm_conf_has_one_fault(node: Node) -> None:
    (node.root / "etc" / "slurm.conf").unlink()
    (found,) = [finding for finding in node.look(controller=True) if finding.level == "fault"]
    assert found.id == "slurm-conf"

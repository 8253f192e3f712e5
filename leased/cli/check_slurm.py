"""check: Slurm's configuration, the plugin, accounting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from leased import __version__
from leased.base import children, elf, text_file
from leased.base.errors import Refused
from leased.cli.check import FAULT, OK, WARNING, Finding, Site, as_list
from leased.config import config, options
from leased.slurm import slurm_gpus, slurmconf
from leased.slurm.slurmconf import Gres, PluginLine

PLUGIN = "gpu_share.so"
IMPORT_S = 30
MOST_BYTES = 64 << 20  # of a plugin
RELEASE = re.compile(rb"gpu-lease plugin ([!-~]+)\0")  # spank/version.c
# As Slurm's own plugins expect: symbols of libslurm are global.
IMPORT = "import os; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import _gpulease_slurmdb"
DEFAULT_SOCKET = config.Config().admin_socket  # the plugin is built with it


def findings(site: Site) -> list[Finding]:
    found = [*as_list(_binding())]
    if site.slurm.path is None and not site.slurm.values:
        words = "no slurm.conf is found, and slurmctld does not answer"
        return [*found, Finding("slurm-conf", FAULT, words, "set SLURM_CONF, or run it on a node")]
    found += as_list(_slurm_conf(site))
    for check in (_plugstack, _gres_types, _gres, _accounting):
        found += as_list(check(site))
    return found


def _slurm_conf(site: Site) -> Iterator[Finding]:
    where = site.slurm.path or "what slurmctld says"
    yield from _odd_lines("slurm-conf", site.slurm.faults)
    if not site.slurm.faults:
        yield Finding("slurm-conf", OK, f"Slurm is configured by {where}")


def _odd_lines(id_: str, faults: list[str]) -> Iterator[Finding]:
    for fault in faults:
        yield Finding(id_, WARNING, f"left out here: {fault}", "correct the line")


# -- the plugin ----------------------------------------------------------------


def _plugstack(site: Site) -> Iterator[Finding]:
    folder = site.slurm.folder or Path("/etc/slurm")
    path = Path(site.slurm.values.get("plugstackconfig", folder / "plugstack.conf"))
    line = f"add the line: optional {PLUGIN}"
    if not path.is_file():
        yield Finding("plugstack", FAULT, f"there is no {path}", f"make it and {line}")
        return
    plugins, faults = slurmconf.plugin_lines(path)
    yield from _odd_lines("plugstack", faults)
    ours = [p for p in plugins if Path(p.path).name == PLUGIN]
    if not ours:
        yield Finding("plugstack", FAULT, f"{path} has no line for {PLUGIN}", line)
        return
    if len(ours) > 1:
        words = f"{path} has {len(ours)} lines for {PLUGIN}"
        yield Finding("plugstack", FAULT, words, "leave one of them")
    elif ours[0].required:
        words = (
            f"{PLUGIN} is required in {ours[0].file}: without its file, or with that of another "
            "Slurm, sbatch and slurmd stop and nodes drain"
        )
        yield Finding("plugstack", WARNING, words, "write optional instead")
    else:
        yield Finding("plugstack", OK, f"{ours[0].file} has {PLUGIN}")
    yield from _plugin_file(site, ours[0])
    yield from _plugin_arguments(site, ours[0])


def _plugin_file(site: Site, line: PluginLine) -> Iterator[Finding]:
    file = slurmconf.plugin_file(line.path, site.slurm.values.get("plugindir", ""))
    if file is None:
        end = "sbatch and slurmd stop at it" if line.required else "jobs share without a lease"
        yield Finding(
            *("plugin-file", FAULT, f"the plugin {line.path} of {line.file} is not there: {end}"),
            "install gpu-lease on this host",
        )
        return
    yield Finding("plugin-file", OK, f"the plugin is {file}")
    yield _plugin_release(file)
    number = elf.number(file, "plugin_version")
    if number is None or site.version is None:
        words = f"whether {file} was built for this Slurm cannot be told"
        yield Finding("plugin-version", WARNING, words, "compare slurmd -V with its package")
        return
    built = (number >> 16 & 255, number >> 8 & 255)
    words = f"{file} is built for Slurm {built[0]}.{built[1]:02}"
    if built != site.version:
        here = f"{site.version[0]}.{site.version[1]:02}"
        yield Finding(
            "plugin-version", FAULT, f"{words}, here is {here}", f"install the one for {here}"
        )
    else:
        yield Finding("plugin-version", OK, words)


def _plugin_release(file: Path) -> Finding:
    name, remedy = "plugin-release", "install the same release of both"
    found = RELEASE.search(text_file.read(file, MOST_BYTES))
    if not found:
        return Finding(name, WARNING, f"{file} does not say its release", remedy)
    release = found[1].decode(errors="replace")
    if release != __version__:
        # An unknown field of a registration is refused, and with it the job.
        words = f"the plugin is of release {release}, this is {__version__}: jobs may be refused"
        return Finding(name, FAULT, words, remedy)
    return Finding(name, OK, "the plugin is of this release")


def _plugin_arguments(site: Site, line: PluginLine) -> Iterator[Finding]:
    given = dict(argument.partition("=")[::2] for argument in line.arguments)
    at = Path(given.get("admin_socket", DEFAULT_SOCKET))
    if at != site.admin_socket:
        yield Finding(
            *(
                "plugin-arguments",
                FAULT,
                f"the plugin connects to {at}, the daemon listens at {site.admin_socket}",
            ),
            f"write admin_socket={site.admin_socket} in {line.file}, or change runtime_dir",
        )
        return
    limits = {"tq_min": site.config.quantum_min_ns, "tq_max": site.config.quantum_max_ns}
    wrong = [name for name, ns in limits.items() if name in given and _ns(given[name]) != ns]
    if "lock_off" in given and (given["lock_off"] == "yes") != site.config.lock_off:
        wrong.append("lock_off")
    if wrong:
        words = f"{', '.join(wrong)} of the plugin's line differ from [limits] of this node"
        yield Finding(
            "plugin-arguments", WARNING, words, "make them equal: the node decides in any case"
        )
    else:
        yield Finding("plugin-arguments", OK, "the plugin's arguments fit this node")


def _ns(text: str) -> int | None:
    try:
        return options.parse_time(text)
    except Refused:
        return None


# -- GRES ----------------------------------------------------------------------


def _gres_types(site: Site) -> Iterator[Finding]:
    types = site.slurm.values.get("grestypes", "").replace(" ", "").split(",")
    missing = [name for name in ("gpu", "shard") if name not in types]
    if missing:
        words = f"GresTypes of slurm.conf lacks {' and '.join(missing)}"
        yield Finding("gres-types", FAULT, words, "write GresTypes=gpu,shard")
    else:
        yield Finding("gres-types", OK, "GresTypes has gpu and shard")


def _gres(site: Site) -> Iterator[Finding]:
    if site.slurm.path is None:
        words = "slurm.conf is not on this host, so gres.conf is not checked"
        yield Finding("node", WARNING, words, "run it on the node")
        return
    node = site.node
    if node is None or node not in site.slurm.nodes:
        words = f"{node or 'this host'} is in no NodeName line of {site.slurm.path}"
        yield Finding("node", WARNING, words, "give its name: --node NAME")
        return
    yield Finding("node", OK, f"this is node {node}")
    counts = slurmconf.gres_counts(site.slurm.nodes[node].get("gres", ""))
    missing = [name for name in ("gpu", "shard") if not counts.get(name)]
    if missing:
        words = f"node {node} has no Gres {' and no '.join(missing)} in slurm.conf"
        yield Finding("node-gres", FAULT, words, "write for example Gres=gpu:4,shard:32")
        return
    yield Finding("node-gres", OK, f"{counts['gpu']} gpu and {counts['shard']} shard")
    path = site.slurm.path.parent / "gres.conf"
    if not path.is_file():
        yield Finding("gres-conf", FAULT, f"there is no {path}", "see slurm-conf/gres.conf")
        return
    said = slurmconf.gres_of(path, node)
    yield from _odd_lines("gres-conf", said.faults)
    yield from _gres_conf(site, said, counts, path)
    yield from _gres_order(site)


def _gres_conf(site: Site, said: Gres, counts: dict[str, int], path: Path) -> Iterator[Finding]:
    example = "see slurm-conf/gres.conf"
    missing = [] if said.gpu_lines or said.autodetect else ["gpu"]
    missing += [] if said.shard_lines else ["shard"]
    if missing:
        words = f"{path} has no line for {' and '.join(missing)} of node {site.node}"
        yield Finding("gres-conf", FAULT, words, example)
        return
    yield Finding("gres-conf", OK, f"{path} has gpu and shard")
    absent = [name for name in said.files if not Path(name).exists()]
    if absent:
        words = f"{path} names {absent[0]}, which is not there"
        yield Finding("gres-files", FAULT, words, "correct File=, or load the driver")
    elif said.files:
        yield Finding("gres-files", OK, f"the device files of {path} are there")
    yield from _gres_numbers(site, said, counts, path)


def _gres_numbers(site: Site, said: Gres, counts: dict[str, int], path: Path) -> Iterator[Finding]:
    gpus, shards = counts["gpu"], counts["shard"]
    wrong = []
    there = len(site.gpus)
    # Fewer may be meant so, where gres.conf says which.
    if there and (gpus > there or (gpus < there and len(said.files) != gpus)):
        wrong.append(f"slurm.conf has {gpus} gpu, NVML shows {there}")
    if said.files and len(said.files) != gpus:
        wrong.append(f"{path} has {len(said.files)} device files, slurm.conf {gpus} gpu")
    if said.shards != shards:
        wrong.append(f"{path} has {said.shards} shard, slurm.conf {shards}")
    if wrong:
        words = "; ".join(wrong)
        yield Finding("gres-count", FAULT, words, "make slurm.conf, gres.conf and the GPUs agree")
    elif shards % gpus:
        words = f"{shards} shard do not divide evenly among {gpus} gpu"
        yield Finding("gres-count", FAULT, words, f"make it a multiple of {gpus}")
    else:
        words = f"{shards} shard on {gpus} gpu: at most {shards // gpus} jobs share one"
        yield Finding("gres-count", OK, words)


def _gres_order(site: Site) -> Iterator[Finding]:
    """Whether a job runs on the GPU whose index Slurm gives it."""
    assert site.slurm.path is not None
    yield from _odd_lines("cgroup-conf", slurmconf.cgroup_conf(site.slurm.path.parent)[1])
    said = slurm_gpus.read(site.slurm.path, site.node)
    if said is None or not site.gpus:
        return
    name = "gres-order"
    try:
        index = slurm_gpus.indices(said, site.gpus)
    except Refused as fault:
        yield Finding(name, FAULT, f"{fault}; jobs are refused", fault.hint)
        return
    remedy = "set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf"
    files = {} if said.gres.autodetect else dict(enumerate(slurm_gpus.files_in_order(said)))
    for gpu in sorted(site.gpus, key=lambda gpu: index.get(gpu.uuid, -1)):
        file = files.get(index.get(gpu.uuid, -1))
        if not said.constrained and file and slurm_gpus.minor(file) != gpu.minor:
            words = f"GPU {index[gpu.uuid]} of Slurm is {file}, and jobs there run on"
            yield Finding(name, FAULT, f"{words} /dev/nvidia{gpu.minor}", remedy)
            return
    if not said.constrained and len(site.gpus) > 1:
        words = "devices are not constrained: a job can open GPUs that Slurm gave to others"
        yield Finding(name, WARNING, words, remedy)
    else:
        yield Finding(name, OK, "jobs run on the GPUs that Slurm gives them")


# -- accounting ----------------------------------------------------------------


def _accounting(site: Site) -> Iterator[Finding]:
    kind = site.slurm.values.get("accountingstoragetype", "accounting_storage/none")
    if kind.endswith("slurmdbd"):
        yield Finding("accounting", OK, "usage goes to slurmdbd")
    else:
        words = f"AccountingStorageType is {kind}: sacct shows no usage of GPUs"
        yield Finding(
            *("accounting", WARNING, words),
            "run slurmdbd, and set AccountingStorageType=accounting_storage/slurmdbd",
        )


def _binding() -> Iterator[Finding]:
    """libslurm may end the process that loads it, so it is tried in another one."""
    done = children.run_and_wait(*children.python(IMPORT), patience_s=IMPORT_S)
    said = done.fault
    if done.status and not said:
        said = (done.err.strip().splitlines() or [f"exit status {done.status}"])[-1]
    if said:
        yield Finding(
            *("libslurm", WARNING, f"usage cannot be written for sacct: {said}"),
            "install gpu-lease's build for this Slurm (it needs libslurm)",
        )
    else:
        yield Finding("libslurm", OK, "the binding of libslurm can be loaded")

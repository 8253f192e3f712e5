"""check: the plugin's line in plugstack.conf, its file and its arguments."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path

from leased import __version__
from leased.base import elf, text_file
from leased.base.errors import Refused
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, finding, unreadable_lines
from leased.config import config, options
from leased.slurm import plugstack
from leased.slurm.plugstack import PluginLine

PLUGIN = "gpu_share.so"
MOST_BYTES = 64 << 20  # of a plugin
RELEASE = re.compile(rb"gpu-lease plugin ([!-~]+)\0")  # spank/version.c
DEFAULT_SOCKET = config.Config().admin_socket  # the plugin is built with it


def findings(site: Site) -> Iterator[Finding]:
    line = yield from _line(site)
    if line is not None:
        yield from _plugin_file(site, line)
        yield from _plugin_arguments(site, line)


def of_submit_host(site: Site) -> Iterator[Finding]:
    """On a host where no job runs. Perhaps none is submitted there either, so this only warns."""
    line = yield from _line(site)
    if line is None:
        return
    if plugstack.plugin_file(line.path, site.slurm.value("plugindir")) is None:
        words = f"the plugin {line.path} of {line.file} is not here: jobs that are submitted on"
        words += " this host cannot use --gpu-share"
        remedy = "install slurm-spank-gpu-share if jobs are submitted here"
        yield Finding("plugin-file", WARNING, words, remedy)
    else:
        yield from _plugin_file(site, line)


def _line(site: Site) -> Generator[Finding, None, PluginLine | None]:
    """The plugin's line in plugstack.conf; None: it has none."""
    folder = site.slurm.folder or Path("/etc/slurm")
    path = Path(site.slurm.value("plugstackconfig") or folder / "plugstack.conf")
    line = f"add the line: optional {PLUGIN}"
    if not path.is_file():
        yield Finding("plugstack", FAULT, f"there is no {path}", f"make the file, and {line}")
        return None
    plugins, faults = plugstack.plugin_lines(path)
    yield from unreadable_lines("plugstack", faults)
    ours = [p for p in plugins if Path(p.path).name == PLUGIN]
    if not ours:
        yield Finding("plugstack", FAULT, f"{path} has no line for {PLUGIN}", line)
        return None
    if len(ours) > 1:
        words = f"{path} has {len(ours)} lines for {PLUGIN}"
        yield Finding("plugstack", FAULT, words, "remove all of them but one")
    elif ours[0].required:
        words = f"{PLUGIN} is required in {ours[0].file}: without its file, or with that of "
        words += "another Slurm, sbatch and slurmd stop and nodes drain"
        yield Finding("plugstack", WARNING, words, "write optional instead")
    else:
        yield Finding("plugstack", OK, f"{ours[0].file} has {PLUGIN}")
    return ours[0]


def _plugin_file(site: Site, line: PluginLine) -> Iterator[Finding]:
    file = plugstack.plugin_file(line.path, site.slurm.value("plugindir"))
    if file is None:
        end = "sbatch and slurmd stop at it" if line.required else "jobs share without a lease"
        words = f"the plugin {line.path} of {line.file} is not there: {end}"
        yield Finding("plugin-file", FAULT, words, "install gpu-lease on this host")
        return
    yield Finding("plugin-file", OK, f"the plugin is {file}")
    yield _plugin_release(file)
    number = elf.number(file, "plugin_version")
    if number is None or site.version is None:
        words = f"it cannot be told whether {file} was built for this Slurm"
        yield Finding("plugin-version", WARNING, words, "compare slurmd -V with its package")
        return
    built = (number >> 16 & 255, number >> 8 & 255)
    words, here = (f"{major}.{minor:02}" for major, minor in (built, site.version[:2]))
    words = f"{file} is built for Slurm {words}"
    wrong = "" if built == site.version[:2] else f"{words}; installed here is {here}"
    yield finding("plugin-version", wrong, f"install the plugin for Slurm {here}", words, FAULT)


def _plugin_release(file: Path) -> Finding:
    name, remedy = "plugin-release", "install the same release of both"
    found = RELEASE.search(text_file.read(file, MOST_BYTES))
    if not found:
        return Finding(name, WARNING, f"the plugin {file} does not say its release", remedy)
    release = found[1].decode(errors="replace")
    if release != __version__:
        # An unknown field of a registration is refused, and with it the job.
        words = f"the plugin is of release {release}, this gpu-leasectl of {__version__}: "
        words += "jobs may be refused"
        return Finding(name, FAULT, words, remedy)
    return Finding(name, OK, "the plugin is of this release")


def _plugin_arguments(site: Site, line: PluginLine) -> Iterator[Finding]:
    given = dict(argument.partition("=")[::2] for argument in line.arguments)
    at = Path(given.get("admin_socket", DEFAULT_SOCKET))
    if at != site.admin_socket:
        words = f"the plugin connects to {at}, the daemon listens at {site.admin_socket}"
        remedy = f"write admin_socket={site.admin_socket} in {line.file}, or change runtime_dir"
        yield Finding("plugin-arguments", FAULT, words, remedy)
        return
    limits = {"tq_min": site.config.quantum_min_ns, "tq_max": site.config.quantum_max_ns}
    wrong = [name for name, ns in limits.items() if name in given and _ns(given[name]) != ns]
    if "lock_off" in given and (given["lock_off"] == "yes") != site.config.lock_off:
        wrong.append("lock_off")
    yield from _several_nodes(site, line, given.get("several_nodes", "no") == "yes")
    words = f"{', '.join(wrong)} of the plugin's line differ from [limits] of this node"
    remedy = "write the values of [limits] in the line; the node's limits apply in any case"
    good = "the plugin's arguments fit this node"
    yield finding("plugin-arguments", words if wrong else "", remedy, good)


def _several_nodes(site: Site, line: PluginLine, told: bool) -> Iterator[Finding]:
    if told == bool(site.config.peers_port):
        return
    if told:
        words = f"{line.file} says several_nodes=yes, but peers.port of this node is 0: jobs on"
        words += " several nodes fail here"
        remedy = "set peers.port in gpu-leased.toml on all nodes"
        yield Finding("several-nodes", FAULT, words, remedy)
    else:
        words = f"peers.port is set, but {line.file} does not say several_nodes=yes: jobs on"
        words += " several nodes are refused at submission"
        remedy = "write several_nodes=yes in the line on all hosts"
        yield Finding("several-nodes", WARNING, words, remedy)


def _ns(text: str) -> int | None:
    try:
        return options.parse_time(text)
    except Refused:
        return None

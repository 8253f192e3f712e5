"""gpu-leasectl check: finds what keeps this node from sharing its GPUs.

Every finding has an id that stays the same from release to release, so that a
site's monitoring can name it. Runs with and without the daemon, and changes nothing. A check is a
file in leased/cli/checks and a row here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from leased.admin.user_limits import UserLimits
from leased.base.errors import Refused
from leased.base.words import count
from leased.cli.checks import (
    cgroups,
    daemon,
    driver,
    gres,
    job_submit,
    libraries,
    metrics,
    placer,
    plugin,
    slurm_conf,
    task_prolog,
    tenant_socket,
    told_rules,
    trusted,
)
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site, as_list, finding
from leased.config import config
from leased.slurm import slurmconf
from leased.slurm.slurmconf import SlurmConf

Check = Callable[[Site], Iterator[Finding]]
# The order matters: later checks use what driver and daemon find.
CHECKS = (
    trusted.findings,
    driver.findings,
    daemon.findings,
    tenant_socket.findings,
    libraries.findings,
    libraries.of_slurm,
    metrics.findings,
    metrics.of_job_mapping,
)
# These need slurm.conf.
CHECKS_OF_SLURM = (
    slurm_conf.findings,
    plugin.findings,
    slurm_conf.plugin_dir,
    slurm_conf.scheduler,
    slurm_conf.requeues,
    gres.findings,
    cgroups.findings,
    task_prolog.findings,
    slurm_conf.accounting,
    told_rules.of_node,
)
# Where slurmctld runs, on a node too.
OF_SLURMCTLD = (job_submit.findings, placer.findings, told_rules.of_all_nodes)
# On a host that runs slurmctld alone: it has no GPU, and no daemon.
CHECKS_OF_CONTROLLER = (
    slurm_conf.findings,
    plugin.of_submit_host,
    slurm_conf.plugin_dir,
    slurm_conf.scheduler,
    gres.of_all_nodes,
    cgroups.findings,
    slurm_conf.accounting,
    *OF_SLURMCTLD,
)


def check_config(path: Path) -> tuple[config.Config, list[Finding]]:
    """The configuration; if its file has a fault, the defaults."""
    try:
        read = config.load(path)
    except Refused as fault:
        remedy = fault.hint or "correct it: gpu-leased does not start with it"
        return config.Config(), [Finding("config", FAULT, str(fault), remedy)]
    none = f"there is no {path}: every key has its default"
    wrong = ""
    try:
        UserLimits.of(read).check_defaults(read.defaults)
    except Refused as fault:
        wrong = str(fault)
    remedy, good = "make defaults.options fit [limits]", "defaults.options are within [limits]"
    return read, [
        Finding("config", OK, f"{path} is understood" if path.exists() else none),
        finding("defaults", wrong, remedy, good, FAULT),
    ]


def look_for_slurm(read: config.Config, file: Path, admin_socket: Path, node: str | None) -> Site:
    """With Slurm's configuration from its files, and from slurmctld if that answers. read: the
    configuration in `file`."""
    path = slurmconf.find(os.environ, read.slurm_conf)
    env = {"SLURM_CONF": str(path)} if path else {}
    found = SlurmConf(path)
    if path is not None:
        try:
            found.read(path)
        except OSError as fault:
            found.path = None
            found.faults.append(f"{fault.filename}: {fault.strerror}")
    asked = slurmconf.ask_config(env)
    found.add_asked(asked)
    if found.path is None and Path(asked.get("slurm_conf", "/nonexistent")).is_file():
        found.path = Path(asked["slurm_conf"])
        found.read(found.path)
    name = node or found.name_here()
    if asked and name not in found.nodes:
        found.add_asked_nodes(slurmconf.ask_nodes(env, name))
    named = name if node or name in found.nodes else None
    return Site(read, file, admin_socket, found, env, slurmconf.version(env), named)


def run(
    path: Path, socket_path: Path | None, node: str | None = None, controller: bool = False
) -> list[Finding]:
    """Look at everything. path: gpu-leased.toml; node: this one's name in slurm.conf.

    controller: this host runs slurmctld and is not a node, even if slurm.conf does not say so.
    """
    read, found = check_config(path)
    site = look_for_slurm(read, path, socket_path or read.admin_socket, node)
    runs_slurmctld = site.slurm.is_controller(socket.gethostname())
    if controller or (runs_slurmctld and site.node is None):
        words = "this host runs slurmctld and is not a node: what nodes need is not checked"
        return [Finding("role", OK, words), *_of_slurm(site, CHECKS_OF_CONTROLLER)]
    found += _all(site, CHECKS) + _of_slurm(site, CHECKS_OF_SLURM)
    return found + _of_slurm(site, OF_SLURMCTLD) if runs_slurmctld else found


def _all(site: Site, checks: Sequence[Check]) -> list[Finding]:
    return [found for check in checks for found in as_list(check(site))]


def _of_slurm(site: Site, checks: Sequence[Check]) -> list[Finding]:
    if site.slurm.path is None and not site.slurm.values:
        words = "there is no slurm.conf here, and slurmctld does not answer"
        return [Finding("slurm-conf", FAULT, words, "set SLURM_CONF, or run this check on a node")]
    return _all(site, checks)


def table(findings: list[Finding]) -> Any:
    """A table for people: each finding, with its remedy below it."""
    from rich.table import Table
    from rich.text import Text

    styles = {OK: "green", WARNING: "yellow", FAULT: "bold red"}
    made = Table(show_header=False, box=None, pad_edge=False)
    for one in findings:
        remedy = f"\n-> {one.remedy}" if one.remedy else ""
        made.add_row(Text(one.level, styles[one.level]), one.id, Text(one.text + remedy))
    levels = [one.level for one in findings]
    faults, warnings = count(levels.count(FAULT), "fault"), count(levels.count(WARNING), "warning")
    made.add_row("", "", Text(f"{count(len(findings), 'check')}: {faults}, {warnings}"))
    return made

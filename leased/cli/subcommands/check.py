"""gpu-leasectl check: what keeps this node from sharing its GPUs."""

from __future__ import annotations

import argparse

from leased.cli.subcommand import ExitStatus, print_answer

SUMMARY = "find what would keep this node, or on slurmctld's host the site, from sharing GPUs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node", help="this node's name in slurm.conf, if it differs from the host name"
    )
    parser.add_argument(
        "--controller",
        action="store_true",
        help="this host runs slurmctld and is not a node (not needed if slurm.conf says so)",
    )


def run(chosen: argparse.Namespace) -> ExitStatus:
    # Only here: it brings asyncio, which takes longer to import than all other subcommands.
    from leased.cli import check
    from leased.cli.checks.finding import FAULT

    findings = check.run(chosen.config, chosen.socket, chosen.node, chosen.controller)
    print_answer(chosen, [finding.as_dict() for finding in findings], lambda: check.table(findings))
    faulty = any(finding.level == FAULT for finding in findings)
    return ExitStatus.REFUSED if faulty else ExitStatus.DONE

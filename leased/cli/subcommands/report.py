"""gpu-leasectl report: who used the GPUs, from Slurm's accounting."""

from __future__ import annotations

import argparse

from leased.cli.subcommand import ExitStatus, WrongUsage, print_answer

SUMMARY = "show who used the GPUs, from Slurm's accounting"

GROUPS = ("user", "account", "job", "step", "device", "node")
# As sacct has them.
SELECTORS = (
    ("-j", "--jobs", "JOBS", "only these jobs, with commas between them"),
    ("-u", "--user", "USER", "only these users' jobs"),
    ("-A", "--account", "ACCOUNT", "only these accounts' jobs"),
    ("-S", "--since", "TIME", "jobs that ran after this time, such as now-7days"),
    ("-E", "--until", "TIME", "jobs that ran before this time"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Who used the GPUs, from what Slurm's accounting has of jobs that have ended. "
        "Without -j and -S it counts from midnight, as sacct does; times are written as for sacct."
    )
    for short, name, metavar, words in SELECTORS:
        parser.add_argument(short, name, default="", metavar=metavar, help=words)
    parser.add_argument("--by", choices=GROUPS, default="user", help="add up by this (user)")
    parser.add_argument("--csv", action="store_true", help="print CSV, with times in seconds")


def run(chosen: argparse.Namespace) -> ExitStatus:
    from leased.cli import report, slurm_commands
    from leased.slurm import sacct

    asked = sacct.Asked(chosen.jobs, chosen.user, chosen.account, chosen.since, chosen.until)
    try:
        rows = sacct.ask(asked, slurm_commands.environment(chosen.config))
    except sacct.WrongUsage as fault:
        raise WrongUsage(str(fault), fault.hint) from None
    made = report.make(rows, chosen.by, asked)
    words = report.as_csv if chosen.csv else report.as_text
    print_answer(chosen, report.as_dict(made), lambda: words(made))
    report.say_problems(made)
    return ExitStatus.REFUSED if made.problems else ExitStatus.DONE

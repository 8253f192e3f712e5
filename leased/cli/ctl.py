"""gpu-leasectl: show what the daemon of this node does, change its settings, find faults."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from leased import __version__
from leased.base.errors import NoAnswer, Refused
from leased.cli import subcommands
from leased.cli.subcommand import MEANINGS, ExitStatus, WrongUsage
from leased.config import config

EPILOG = """\
exit status:
{}

Faults are sentences on standard error, which name the remedy; with --json they are also an
object {{"error": ..., "hint": ...}} on standard output. See docs/gpu-leasectl.md.
""".format("\n".join(f"  {status.value:<4}{words}" for status, words in MEANINGS.items()))


# Of what is written: the disk is full, or the user's part of it.
FULL = (errno.ENOSPC, errno.EDQUOT)


def all_subcommands() -> dict[str, ModuleType]:
    """By name: each file in leased/cli/subcommands is one."""
    names = sorted(module.name for module in pkgutil.iter_modules(subcommands.__path__))
    return {name: importlib.import_module(f"{subcommands.__name__}.{name}") for name in names}


def make_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands. `run` of the parsed arguments is the function of the chosen
    one."""
    parser = argparse.ArgumentParser(
        prog="gpu-leasectl",
        description=(__doc__ or "").partition(": ")[2],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    config.add_option(parser)
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="FILE",
        help="the daemon's admin.sock (mine, env, park, unpark, move and run: its tenant.sock)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in all_subcommands().items():
        made = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        made.add_argument("--json", action="store_true", help="print the answer as JSON")
        made.set_defaults(run=module.run)
        if hasattr(module, "add_arguments"):
            module.add_arguments(made)
    return parser


def status_of(fault: Refused | TimeoutError) -> ExitStatus:
    """The exit status for what a subcommand has raised."""
    if isinstance(fault, NoAnswer):
        return ExitStatus.NO_ANSWER
    if isinstance(fault, WrongUsage):
        return ExitStatus.USAGE
    return ExitStatus.REFUSED if isinstance(fault, Refused) else ExitStatus.TOO_LATE


def print_fault(chosen: argparse.Namespace, fault: Refused | TimeoutError) -> None:
    """The fault and its remedy on standard error; with --json on standard output as well."""
    hint = fault.hint if isinstance(fault, Refused) else ""
    if chosen.json:
        print(json.dumps({"error": str(fault), "hint": hint}))
    print(f"gpu-leasectl: {fault}{'; ' if hint else ''}{hint}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> ExitStatus:
    """Carry out one subcommand; see EPILOG for the exit status."""
    chosen = make_parser().parse_args(arguments)
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 # until the end
    try:
        status = ExitStatus(chosen.run(chosen) or ExitStatus.DONE)
        sys.stdout.flush()
        return status
    except (Refused, TimeoutError) as fault:
        print_fault(chosen, fault)
        return status_of(fault)
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        _end_output()  # whoever read it has enough
        return ExitStatus.DONE
    except OSError as fault:
        if fault.errno not in FULL:
            raise
        _end_output()
        print(f"gpu-leasectl: not all could be written: {fault.strerror}", file=sys.stderr)
        return ExitStatus.REFUSED


def _end_output() -> None:
    """Nothing more may be written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    raise SystemExit(main())

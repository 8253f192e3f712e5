"""gpu-leasectl(1): of the subcommands as --help has them."""

from __future__ import annotations

from leased.cli import ctl
from leased.cli.exit_status import MEANINGS
from leased.config import config
from leased.manual import arguments, roff
from leased.manual.roff import Page

ABOUT = """\
The daemon `gpu-leased` of this node is asked on its sockets: `mine`, `env`, `park` and `unpark`
on tenant.sock, which every user may open, the others on admin.sock. `check`, `plot`, `report` and
`simulate` work without it.

What a command prints is for people; with `--json` it is one JSON value, whose fields
docs/gpu-leasectl.md describes. `--help` explains each command. Faults are sentences on standard
error that name the remedy.
"""


# Every command has them, and the description says so.
OF_EACH = frozenset({"-h", "--json"})


def page() -> Page:
    parser = ctl.make_parser()
    made = Page("gpu-leasectl", 1, (parser.description or "").rstrip("."))
    made.section("synopsis")
    made.usage("gpu-leasectl [--config FILE] [--socket FILE] COMMAND [ARGUMENT ...]")
    made.section("description")
    made.paragraphs(ABOUT)
    made.section("options")
    arguments.write_options(made, parser, frozenset())
    made.section("commands")
    for name, command in arguments.subparsers(parser).items():
        made.subsection(name)
        made.usage(arguments.usage(command))
        made.paragraph(_sentence(command.description or ""))
        arguments.write_options(made, command, OF_EACH)
        if command.epilog and "\n" in command.epilog:
            made.example(command.epilog)
        elif command.epilog:
            made.paragraph(command.epilog)
    made.section("exit status")
    for status, meaning in MEANINGS.items():
        made.item(f"\\fB{status.value}\\fR", meaning)
    made.section("files")
    made.item(roff.words(f"`{config.DEFAULT_PATH}`"), "The configuration of the node's daemon.")
    made.section("see also")
    made.paragraph(
        "`gpu-leased`(8), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-lease-placer`(8), `sacct`(1)"
    )
    return made


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
